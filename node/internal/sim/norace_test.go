//go:build !race

package sim_test

// shortList is how many seeds every test of the package runs.
const shortList = "60"
