// Package ready says whether a node can serve what it has been given, and if not,
// why not.
//
// A replica counts as level once it has applied what a leader had committed when
// the node was told of it. Latch is that memory: it is set once and stays set, so
// that a busy table which is always a few entries behind does not make a node
// unready. It is set only against a real frontier: a replica that nobody has told
// anything is never level, however empty it is.
//
// It may import node/api.
package ready
