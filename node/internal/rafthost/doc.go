// Package rafthost runs the raft groups of a node: many groups, one loop, one
// disk write a pass.
//
// A Stepper is the whole of it without threads: what arrives is given to it, a
// call of Pass does everything that follows, in the order that DESIGN.md beside
// this file gives. A Host drives a Stepper in production; the simulator drives
// it from one event loop. It knows replicas and entries, and nothing of tables.
//
// It may import the standard library, wire, store, raftlog and the raft library.
package rafthost
