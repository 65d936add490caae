// Package owner holds the tables that live on this node: it opens their
// replicas, executes requests on those that this node owns, and hands them over.
//
// It may import what stands below: api, wire, store, table and rafthost.
package owner
