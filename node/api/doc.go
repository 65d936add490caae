// Package api holds the words that tidal's parts and its users share: ids,
// leases, tables, requests, answers and errors.
//
// It has no behaviour beyond parsing and printing them. It may import the
// standard library only.
package api
