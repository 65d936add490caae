// Package config holds what a node is told before it starts: the keys of
// tidal.toml, their defaults, where each value came from, and what is wrong with
// them.
//
// Values come from flags, the environment, the file and the defaults, in this
// order. Load reads them and Validate judges them; neither looks at the disk
// beyond the file, nor at the network.
//
// It may import node/api, the standard library and the TOML library.
package config
