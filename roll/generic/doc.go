// Package generic lets a roll restart a cluster that is not tidal: its nodes are
// listed, readiness is what a probe says, drains and restarts are command templates,
// and a quorum is a number of nodes. It knows no tables, levels and owners, and says
// so. Its journal and lock are a file, or a row of a cluster of tidal.
//
// It may import roll, node/api and node/client.
package generic
