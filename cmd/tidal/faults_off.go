//go:build !faults

package main

import "tidal/node"

// faults changes nothing: only a binary built for tests can be broken on purpose.
func (a *app) faults(*node.Options) error { return nil }

// fault returns none of tidal top either.
func (a *app) fault() string { return "" }
