// Package place decides where tables should be: which nodes hold the replicas of
// a new one, which of the holders should own each, and by which steps a group gets
// from the replicas that it has to those that it should have.
//
// All are pure functions of what they are given, so that all nodes come to the
// same result from the same view without a word between them. Nodes are drawn by
// rendezvous hashing: each table has an order of preference over nodes that does
// not depend on which other nodes exist, so that a node that comes or goes moves
// its own share of the tables and few others.
//
// It may import node/api.
package place
