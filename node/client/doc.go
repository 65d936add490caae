// Package client talks to a node or a cluster of tidal over its HTTP API.
//
// It tries the endpoints in turn, and sends a request again only where the
// outcome of the last attempt allows it: writes carry an Idempotency-Key, so
// that one that is sent twice is applied once. With Options.Streams requests for
// rows go over streams of frames, to the owner of the table.
//
// It may import the standard library, node/api and, for the frames, wire.
package client
