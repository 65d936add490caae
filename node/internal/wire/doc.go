// Package wire holds the formats of what nodes store and send to each other, and of
// clients' streams, each with a version or kind in its first byte.
//
// Encoders append to a slice and cannot fail. Decoders are given bytes from a
// disk or a peer and trust none of them: they return an error that names the
// field and wraps ErrMalformed, never panic, and never allocate for a length
// that the input does not hold.
//
// It may import node/api and raft's raftpb.
package wire
