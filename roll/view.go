package roll

import (
	"slices"
	"time"
)

// View is a cluster at one moment, as a quorum of it and each of its nodes say.
type View struct {
	Kind       string    // KindGeneric, or "" of tidal
	Quorum     int       // of a generic cluster: how many nodes must be ready
	Canary     string    // of a generic cluster: the command; "": there is none
	At         time.Time // when it was begun
	Cluster    string
	ClusterID  string
	MetaLeader string // of tidal
	Nodes      []Node // every member, in the order of their ids
	Tables     []Table
}

// Node is a member in a view.
type Node struct {
	ID          string
	Address     string
	Zone        string
	Version     string
	Disk        string
	Incarnation string // as its peers know it; "": it has no lease
	Binary      string // SHA-256 of what it runs; "": nobody asked
	Draining    bool
	MetaVoter   bool
	Leads       bool // of a generic cluster

	Silent string   // why it did not answer; "": it did
	Owned  int      // tables, as it says
	Wrong  []string // why it is not ready, as it says
	Claim  string   // who claims its drain, if that is no roll
}

// Live reports whether the node has a lease and answered.
func (n *Node) Live() bool { return n.Incarnation != "" && n.Silent == "" }

// stays reports whether the node can be counted on: one that drains may be about to end.
func (n *Node) stays() bool { return n.Live() && !n.Draining }

// Ready reports whether the node may be sent traffic.
func (n *Node) Ready() bool { return n.Live() && len(n.Wrong) == 0 }

// why says what keeps a node from being ready.
func (n *Node) why() string {
	switch {
	case n.Silent != "":
		return n.Silent
	case n.Incarnation == "":
		return "it has no lease"
	case len(n.Wrong) > 0:
		return n.Wrong[0]
	}
	return "it is ready"
}

// Table is a table in a view.
type Table struct {
	Name     string
	Owner    string
	Place    string
	Moving   bool // a replica of it is on its way
	Replicas []Replica
}

// Replica is a copy of a table that counts for its quorum.
type Replica struct {
	Node  string
	Level bool // it has applied all that the table had committed when the view was begun
}

// Node returns the node with that id.
func (v *View) Node(id string) (*Node, bool) {
	for i := range v.Nodes {
		if v.Nodes[i].ID == id {
			return &v.Nodes[i], true
		}
	}
	return nil, false
}

// leads reports whether a node leads the metadata, or whatever a generic cluster has
// leaders for.
func (v *View) leads(id string) bool {
	n, ok := v.Node(id)
	return v.MetaLeader == id || ok && n.Leads
}

// silentBeside reports whether a node beside some did not answer.
func (v *View) silentBeside(some []string) bool {
	return slices.ContainsFunc(v.Nodes, func(n Node) bool { return n.Silent != "" && !slices.Contains(some, n.ID) })
}

// IDs returns the ids of all members.
func (v *View) IDs() []string {
	ids := make([]string, len(v.Nodes))
	for i := range v.Nodes {
		ids[i] = v.Nodes[i].ID
	}
	return ids
}

// quorum returns how many of so many voters agree.
func quorum(voters int) int { return voters/2 + 1 }

// voters returns who votes for the metadata, and whom of them it could count on without
// some nodes.
func (v *View) voters(without []string) (all, kept []string) {
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if !n.MetaVoter {
			continue
		}
		all = append(all, n.ID)
		if n.stays() && !slices.Contains(without, n.ID) {
			kept = append(kept, n.ID)
		}
	}
	return all, kept
}

// left returns the replicas that a table could count on without some nodes: those
// that are level, on nodes that live and do not drain.
func (v *View) left(t *Table, without []string) []string {
	var out []string
	for _, r := range t.Replicas {
		n, known := v.Node(r.Node)
		if known && n.stays() && r.Level && !slices.Contains(without, r.Node) {
			out = append(out, r.Node)
		}
	}
	return out
}
