package roll

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// planVersion is the format of a plan.
const planVersion = 1

// Options are what an operator asks of a roll. They are part of its plan, so that
// whoever resumes it goes on as was meant.
type Options struct {
	Only             []string      `json:"only,omitempty"`
	Skip             []string      `json:"skip,omitempty"`
	MaxUnavailable   int           `json:"max_unavailable"`
	ByZone           bool          `json:"by_zone,omitempty"`
	PauseAfter       int           `json:"pause_after,omitempty"` // nodes; 0: never
	Settle           time.Duration `json:"settle"`
	Stall            time.Duration `json:"stall"`
	MaxRefusals      uint64        `json:"max_refusals"`
	AllowUnavailable bool          `json:"allow_unavailable,omitempty"`
	Driver           string        `json:"driver"`
	Command          string        `json:"command,omitempty"`     // of the driver exec
	HookBefore       string        `json:"hook_before,omitempty"` // shell commands of whoever runs the roll
	HookAfter        string        `json:"hook_after,omitempty"`
	Binary           string        `json:"binary,omitempty"`  // SHA-256 of what every node must run afterwards; "": what stands at its path
	Version          string        `json:"version,omitempty"` // that every node must run afterwards; "": whatever it runs
	Back             bool          `json:"back,omitempty"`    // Binary is what the nodes ran before the last upgrade
}

// Limit is how long a command of whoever rolls may take: a driver's, or a hook.
func (o *Options) Limit() time.Duration { return max(o.Stall, time.Minute) }

// Plan is what a roll is going to do, and the world that it was made for.
type Plan struct {
	Format    int       `json:"format"`
	Cluster   string    `json:"cluster"`
	ClusterID string    `json:"cluster_id"`
	Made      time.Time `json:"made"`
	Options   Options   `json:"options"`
	Nodes     []Planned `json:"nodes"`          // in the order in which they will be rolled, then those that are left alone
	Tables    string    `json:"tables"`         // hash of the tables with their replicas
	Checks    []Check   `json:"checks"`         // of the first node; of others those that block or warn
	Kind      string    `json:"kind,omitempty"` // of the cluster; "": tidal
	// Commands are what is run in a generic cluster, in that order.
	Commands []PlannedCommand `json:"commands,omitempty"`
	// Canary is asked all the while; "": there is none.
	Canary string `json:"canary,omitempty"`
}

// PlannedCommand is a command of a plan, word for word.
type PlannedCommand struct {
	Node    string `json:"node"`
	What    string `json:"what"` // drain, restart, ready, …
	Command string `json:"command"`
}

// Planned is a node in a plan.
type Planned struct {
	Node        string `json:"node"`
	Disk        string `json:"disk"`
	Incarnation string `json:"incarnation"` // when the plan was made
	Version     string `json:"version"`
	Zone        string `json:"zone,omitempty"`
	Owned       int    `json:"tables_owned"`
	Binary      string `json:"binary,omitempty"` // SHA-256 of what it runs, if the roll is to another
	Silent      string `json:"silent,omitempty"` // why it did not answer when the plan was made; "": it did
	Skip        string `json:"skip,omitempty"`   // why it is left alone; "": it is rolled
}

// NewPlan makes the plan of a roll. The error is about the options.
func NewPlan(v *View, o Options) (*Plan, error) {
	for _, id := range slices.Concat(o.Only, o.Skip) {
		if _, ok := v.Node(id); !ok {
			return nil, fmt.Errorf("there is no node %s in cluster %s: its nodes are %s", id, v.Cluster, strings.Join(v.IDs(), ", "))
		}
	}
	p := &Plan{
		Format: planVersion, Cluster: v.Cluster, ClusterID: v.ClusterID, Made: v.At.UTC(), Options: o, Kind: v.Kind, Canary: v.Canary,
		Tables: fingerprint(v), Checks: []Check{},
	}
	var rolled, left []Planned
	for _, n := range Order(v, v.IDs()) {
		at, _ := v.Node(n)
		x := Planned{Node: n, Disk: at.Disk, Incarnation: at.Incarnation, Version: at.Version, Zone: at.Zone, Owned: at.Owned, Binary: at.Binary, Silent: at.Silent}
		if x.Skip = o.skips(at); x.Skip == "" {
			rolled = append(rolled, x)
		} else {
			left = append(left, x)
		}
	}
	p.Nodes = slices.Concat(rolled, left)
	for i, x := range rolled {
		all := Checks(v, p.question([]string{x.Node}))
		if i > 0 { // of the first node every check is shown
			all = slices.DeleteFunc(all, func(c Check) bool {
				return c.Level == OK || c.Level == Unknown || c.Name == "budget" || c.Name == "view"
			})
			for k := range all {
				all[k].Detail = "node " + x.Node + ": " + all[k].Detail
			}
		}
		p.Checks = append(p.Checks, all...)
	}
	return p, nil
}

// skips says why a node is left alone, "" if it is not.
func (o *Options) skips(n *Node) string {
	switch {
	case len(o.Only) > 0 && !slices.Contains(o.Only, n.ID):
		return "it is not among those of --only"
	case slices.Contains(o.Skip, n.ID):
		return "it is among those of --skip"
	case o.Binary != "" && n.Binary == o.Binary && n.Ready():
		return fmt.Sprintf("it runs %s already, of the binary %.12s", n.Version, o.Binary)
	case o.Binary == "" && o.Version != "" && n.Version == o.Version && n.Ready():
		return "it runs " + o.Version + " already"
	}
	return ""
}

// Rolled returns the nodes that the plan rolls, in its order.
func (p *Plan) Rolled() []string {
	var out []string
	for _, n := range p.Nodes {
		if n.Skip == "" {
			out = append(out, n.Node)
		}
	}
	return out
}

// answered reports whether a node answered when the plan was made.
func (p *Plan) answered(id string) bool {
	return slices.ContainsFunc(p.Nodes, func(n Planned) bool { return n.Node == id && n.Incarnation != "" && n.Silent == "" })
}

// Pick returns the nodes of a view that the plan rolls.
func (p *Plan) Pick(v *View) []Node {
	var out []Node
	for _, id := range p.Rolled() {
		if n, ok := v.Node(id); ok {
			out = append(out, *n)
		}
	}
	return out
}

// question asks the gate for some of the plan's nodes.
func (p *Plan) question(nodes []string) Question {
	zones := map[string]string{}
	for _, n := range p.Nodes {
		zones[n.Node] = n.Zone
	}
	return Question{
		Nodes: nodes, MaxUnavailable: max(p.Options.MaxUnavailable, len(nodes)), AllowUnavailable: p.Options.AllowUnavailable,
		ByZone: p.Options.ByZone, Zones: zones, MaxRefusals: p.Options.MaxRefusals, Kind: p.Kind, Canary: p.Canary != "",
	}
}

// Expected returns every node that there must be.
func (p *Plan) Expected() []string {
	out := make([]string, len(p.Nodes))
	for i, n := range p.Nodes {
		out[i] = n.Node
	}
	return out
}

// Order sorts nodes as a roll takes them: those that are not ready first, then
// those that own least, and the leader of the metadata last, so that it moves once.
func Order(v *View, ids []string) []string {
	out := slices.Clone(ids)
	slices.SortStableFunc(out, func(a, b string) int {
		x, _ := v.Node(a)
		y, _ := v.Node(b)
		if x == nil || y == nil {
			return 0
		}
		return cmp.Or(
			compareBool(x.Ready(), y.Ready()),
			compareBool(v.leads(a), v.leads(b)),
			cmp.Compare(x.Owned, y.Owned),
			cmp.Compare(a, b),
		)
	})
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// fingerprint names the tables of a view with the nodes of their replicas.
func fingerprint(v *View) string {
	h := sha256.New()
	for _, t := range v.Tables {
		_, _ = fmt.Fprintf(h, "%s:", t.Name) // a hash never fails
		for _, r := range t.Replicas {
			_, _ = fmt.Fprintf(h, " %s", r.Node)
		}
		_, _ = h.Write([]byte{'\n'})
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Changes says what is no longer as it was when the plan was made; none: nothing.
func (p *Plan) Changes(v *View) []string {
	if p.Format != planVersion {
		return []string{fmt.Sprintf("the plan has format %d, and this program knows %d", p.Format, planVersion)}
	}
	if p.ClusterID != v.ClusterID {
		return []string{fmt.Sprintf("the plan is for cluster %s (%s), and this is %s (%s)", p.Cluster, p.ClusterID, v.Cluster, v.ClusterID)}
	}
	var out []string
	for _, was := range p.Nodes {
		now, ok := v.Node(was.Node)
		switch {
		case !ok:
			out = append(out, "node "+was.Node+" is no member any more")
		case now.Disk != was.Disk:
			out = append(out, "node "+was.Node+" has another disk")
		case now.Incarnation != was.Incarnation:
			out = append(out, fmt.Sprintf("node %s is %s, and was %s", was.Node, orNone(now.Incarnation), orNone(was.Incarnation)))
		case now.Version != was.Version:
			out = append(out, fmt.Sprintf("node %s runs %s, and ran %s", was.Node, now.Version, was.Version))
		}
	}
	for _, id := range v.IDs() {
		if !slices.Contains(p.Expected(), id) {
			out = append(out, "node "+id+" is new")
		}
	}
	if now := fingerprint(v); now != p.Tables {
		out = append(out, "the tables are others, or have their replicas on other nodes")
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "without a lease"
	}
	return s
}
