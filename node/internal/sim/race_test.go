//go:build race

package sim_test

// shortList is shorter with the race detector, which makes a run ten times as long,
// and so is shortReshaping.
const (
	shortList      = "12"
	shortReshaping = "4"
)
