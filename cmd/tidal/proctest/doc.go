// Package proctest runs real tidal processes and breaks their promises if it
// can: graceful restarts under load, crashes, first starts. It is for tests
// only; nothing imports it. What needs root, or a program that is not installed, is
// skipped and says so; what takes minutes runs on demand, by a target of the Makefile.
//
// The files harness_*_test.go hold what the tests share: a cluster of processes
// with a slow, cuttable TCP proxy before each node, a fleet of writers that
// behave like clients behind a load balancer, and a checker that reads every row
// back. The fleet, the proxy and the checker have tests of their own against
// servers that lie.
//
// Tests that measure rates or waits run alone; the others run side by side after
// them.
//
// Its tests may import the standard library and what goes with it, the words of the
// rooms that users see (tidal/node/api, tidal/node/client, tidal/pki, tidal/roll) and
// a checker of histories; everything else they learn from the binary.
package proctest
