// Package node is a node of a tidal cluster: it composes the parts below it and
// owns their order of life.
//
// A node goes through these phases, and a test records them:
//
//	prepare  storage and groups are open; peers see nothing of it
//	listen   the port is bound; who connects now waits and is not refused
//	start    streams run, the cluster forms or is rejoined, the address is proven
//	serving  the lease is granted: requests come, tables may be owned
//	drain    the lease is marked, owned tables are handed over, requests go on
//	stop     the lease is withdrawn, what is in flight ends, storage is closed
//
// What it tells, in its log, its metrics and GET /cluster/events, comes together in
// one place: events.go.
//
// It may import everything under node, and pki.
package node
