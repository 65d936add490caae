//go:build !faults

package main

import (
	"tidal/node"
	"tidal/node/api"
)

// faults changes nothing: only a binary built for tests can be broken on purpose.
func (a *app) faults(*node.Options) error { return nil }

// levels returns those of the release.
func (a *app) levels() (api.Levels, error) { return node.Levels(), nil }

// fault returns none of tidal top either.
func (a *app) fault() string { return "" }
