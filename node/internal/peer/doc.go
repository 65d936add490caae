// Package peer carries what nodes say to each other: raft messages and heartbeats
// on one connection, calls and their replies on another, each snapshot on one of
// its own, over the one port that clients use too.
//
// A connection begins as an HTTP/1.1 request that asks for an upgrade. Then each
// side says hello, and each side gives its verdict on the other's hello; only two
// good verdicts make a connection. A dial that succeeded proves nothing before
// that: under TLS 1.3 it returns before the server has looked at the client's
// certificate.
//
// Each node dials each other node, so between two nodes stand two connections of
// each kind. A raft connection carries what its dialling side has to say; a call
// connection carries the calls of its dialling side and the replies to them. A
// snapshot's is dialled for it alone: its first part, the word that it is its
// turn, the other parts, and the receiver's verdict.
//
// It may import node/api, wire and the standard library.
package peer
