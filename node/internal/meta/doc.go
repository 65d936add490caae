// Package meta is the state machine of the meta group: members, their leases,
// tables and where their replicas are, the counters that number tables and
// replicas, and rolls: who holds the one lock, and the journal of what was done.
//
// State is the machine and belongs to one goroutine; View is what it hands to all
// others: a snapshot that never changes. Applying an entry returns the records to
// store, each under a readable key, and Load makes the state of them again.
// Every command may be applied twice without harm, so no request ids are kept.
//
// It may import node/api and wire. It has no clock, no disk and no network.
package meta
