// Command go-client shows how a Go program works with tidal: it connects with a
// client certificate, makes a table, writes and reads rows over streams, changes one on
// the condition that nobody else did, and tells errors apart by what became of the
// request.
//
//	go run ./examples/go-client -certs dev/certs -endpoints https://127.0.0.1:8433,https://127.0.0.1:8434
//
// with the addresses that `tidal dev` prints.
//
// It may import the standard library, node/api and node/client.
package main
