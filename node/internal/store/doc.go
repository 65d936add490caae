// Package store keeps everything a node has on its disk in one pebble database:
// identity, raft entries and hard states, rows and request ids.
//
// One database has one write-ahead log, so what survives a crash is a prefix of
// what was written: a batch is never there without those committed before it.
// The rules that rest on this are in rafthost/DESIGN.md.
//
// It may import the standard library and pebble.
package store
