// Package client talks to a node or a cluster of tidal over its HTTP API.
//
// It tries the endpoints in turn, and sends a request again only where the
// outcome of the last attempt allows it: writes carry an Idempotency-Key, so
// that one that is sent twice is applied once. It may import the standard
// library and tidal/node/api only.
package client
