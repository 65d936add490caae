// Package early keeps commands that have nothing to do with a terminal from touching it.
//
// The library of tidal top asks the terminal for its background colour in an init,
// before main, whatever the command is: a terminal that does not answer then holds up
// `tidal certs gen` for five seconds, and gets an escape sequence into its output. The
// library leaves a terminal alone if the variable CI is set, so this package sets it
// before, and Restore takes it back. Go initialises a package without imports of ours
// before those that need more.
//
// It may import os alone.
package early
