// Package cluster is this node's membership: how the cluster forms, the meta
// group, leases, who owns which table, and when owned tables move.
//
// A Cluster is driven by its own loops (Run), by the host's events, and by what
// peers send. It knows no transport: it calls peers through the Net it is given.
//
// It may import what stands below: api, wire, meta, place, ready, store, rafthost
// and, of its own floor's kind, nothing; the tables reach it as an interface.
package cluster
