// Package server speaks HTTP: it turns requests into words of tidal/node/api,
// hands them down through the interfaces in server.go, and writes what comes
// back. docs/http-api.md describes what it answers.
//
// A client may turn its connection into a stream of frames, which carries requests for
// rows; they are checked, counted and bounded as those over HTTP.
//
// The plain requests for one row that follow another on a connection are read and written
// here, in lanes, and not by net/http, which has all others. What answers is the same.
//
// It keeps nothing but counters. It may import the standard library, node/api and, for
// the frames, wire.
package server
