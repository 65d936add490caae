// Package router brings each row request to the owner of its table: it executes
// the request here, or forwards it, and waits while the table moves.
//
// It knows neither tables nor the network: what it needs of them is the three
// interfaces in router.go. DESIGN.md has its rules and their reasons. It may
// import the standard library and tidal/node/api only.
package router
