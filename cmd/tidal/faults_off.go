//go:build !faults

package main

import "tidal/node"

// faults returns no fault: only a binary built for tests can be broken on purpose.
func (a *app) faults() (node.Faults, error) { return node.Faults{}, nil }
