// Package roll restarts the nodes of a cluster one after the other, and proves that
// nobody noticed: it plans, checks before each step whether every table could do
// without the node, hands over, restarts, waits until the node is back and level,
// and counts what clients were refused meanwhile.
//
// The gate is pure: a View in, named checks out. The runner sees the cluster through
// the interface Cluster, and writes what it does into a Journal before it does it,
// so that another can go on where it was cut off. When something is wrong it
// pauses: it never forces, and never touches a second node.
//
// It may import node/api and node/client.
package roll
