// Package sim is for tests only: it runs a cluster of three replicas of several
// tables in one event loop, in virtual time, from one seed, and checks what the
// clients and the replicas saw.
//
// What runs is what production runs below the network: store on pebble,
// rafthost.Stepper, table.Machine. The network, the clocks, the disks and the
// clients are simulated: messages are late, lost, doubled and out of order, links
// break, nodes tick at their own pace, and crash between two steps or in the
// middle of a write to their disk. In two of three runs logs are kept so short that
// replicas which were away need snapshots, which get lost as messages do. In runs of
// even seeds clients write under conditions and with ids of both lifetimes, and now
// and then everybody stands still for longer than one, with copies of requests on
// their way: what a table forgets, and when, shows there.
//
// With Options.Reshape there is a fourth node, and replicas move from one node to
// another all the while: a learner comes, takes the place of another in one joint
// change, and the other is removed; moves are taken back, and leaders hand over, in
// the middle of it. What decides about that is one roster that all nodes know, as the
// meta group would be.
//
// The same seed gives the same run, to the byte. Two things that are not the
// loop's take part in it: raft draws its election timeouts from crypto/rand, so
// a test seeds that too; and pebble has goroutines, so Run must be called in a
// synctest bubble and waits for them after each step that touches a disk.
//
// The tests read the environment: TIDAL_SIM_SEEDS (a number, or FROM-TO) is which
// seeds TestSeeds runs, TIDAL_SIM_SEED the one that TestSeed replays with a trace,
// TIDAL_SIM_DEFECT with which defect it does so, TIDAL_SIM_RESHAPE that replicas move
// there, and TIDAL_SIM_SEARCH the seeds in which TestDefects and TestReshapingDefects
// look for those that find each defect.
//
// It may import node/api, wire, store, place, table, raftlog, rafthost, raftpb and
// pebble's vfs.
// No production code may import it.
package sim
