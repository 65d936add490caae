// Command go-client shows how a Go program works with tidal: it connects with a
// client certificate, makes a table, writes and reads rows over streams, changes one on
// the condition that nobody else did, and tells errors apart by what became of the
// request.
//
// It may import the standard library, node/api and node/client.
package main
