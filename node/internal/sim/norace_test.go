//go:build !race

package sim_test

// shortList is how many seeds every test of the package runs, shortReshaping how many
// with replicas that move.
const (
	shortList      = "60"
	shortReshaping = "16"
)
