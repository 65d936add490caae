// Package tui is tidal top: a cluster at a glance, on a terminal.
//
// A feed asks the nodes side by side and keeps what they said last, with its age. A
// model turns what is kept into lines, a few times a second, and keys into questions;
// it does no input or output of its own, so that tests can look at every screen. What
// is old is shown as old, and the program stays when the cluster goes.
//
// It may import node/api and node/client; bubbletea and lipgloss are its terminal.
package tui
