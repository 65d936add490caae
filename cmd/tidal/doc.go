// Command tidal is the node of a replicated table store and every tool that an
// operator needs around it.
//
// main.go is the one place that exits; run.go puts the commands together and
// turns an error into an exit code; each command has a file of its own.
//
// It may import node, node/config, node/api, node/client, pki, roll and tui, and its own early.
package main
