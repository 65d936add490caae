// Package raftlog keeps the raft entries, hard state and applied state of every
// group of a node in the store, and serves them to raft.
//
// It is the border behind which log storage may change. A Log is used by the
// loop that owns its group and by nobody else.
//
// It may import the standard library, wire, store and the raft library.
package raftlog
