package main

import (
	"github.com/urfave/cli/v2"

	"tidal/node/client"
)

// opened is what a command that asks a cluster begins with.
type opened struct {
	args   []string
	format string
	cl     *client.Client // which the command closes
}

// open reads the arguments of a command, which are named as for argsOf, and the form of
// its output, and connects it to its cluster.
func (a *app) open(c *cli.Context, args ...string) (*opened, error) {
	got, err := argsOf(c, args...)
	if err != nil {
		return nil, err
	}
	format, err := formatOf(c)
	if err != nil {
		return nil, err
	}
	cl, err := a.connect(c)
	if err != nil {
		return nil, err
	}
	return &opened{got, format, cl}, nil
}
