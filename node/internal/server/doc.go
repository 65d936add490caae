// Package server speaks HTTP: it turns requests into words of tidal/node/api,
// hands them down through the interfaces in server.go, and writes what comes
// back. docs/http-api.md describes what it answers.
//
// It keeps nothing but counters. It may import the standard library and
// tidal/node/api only.
package server
