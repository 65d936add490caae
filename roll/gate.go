package roll

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Level is how much a check counts.
type Level string

// The levels.
const (
	OK    Level = "ok"
	Warn  Level = "warn"
	Block Level = "block"
)

// Check is one named finding of the gate.
type Check struct {
	Name   string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// Question is what the gate is asked: may these nodes be restarted now.
type Question struct {
	Nodes            []string          // to go down together
	Expected         []string          // every node that there must be; none: those of the view
	After            time.Time         // the view must be younger
	MaxUnavailable   int               // nodes that may be down or not ready at once, these included
	ByZone           bool              // and these of one zone
	Zones            map[string]string // of nodes whose zone is not seen now
	AllowUnavailable bool              // tables with a single replica may wait for it
	Refused          uint64            // requests refused since the roll began
	MaxRefusals      uint64
	Kind             string // of the cluster; "": tidal
	Canary           bool   // in a cluster that counts nothing itself, one counts
}

// shownNames is how many names a finding lists.
const shownNames = 5

// Checks answers a question with every check there is, by name, in a fixed order.
// Nothing that is missing from the view counts as well.
func Checks(v *View, q Question) []Check {
	if v.Kind == KindGeneric {
		return countedChecks(v, q)
	}
	return []Check{
		checkView(v, q), checkMembers(v, q), checkBudget(v, q), checkClaims(v, q), checkMeta(v, q),
		checkTables(v, q), checkSingles(v, q), checkOwners(v, q), checkMoves(v, q), checkRefused(q),
	}
}

// Blocked returns the checks that block.
func Blocked(all []Check) []Check {
	return slices.DeleteFunc(slices.Clone(all), func(c Check) bool { return c.Level != Block })
}

func checkView(v *View, q Question) Check {
	c := Check{Name: "view", Level: OK, Detail: fmt.Sprintf("of %d nodes, from a quorum", len(v.Nodes))}
	if v.At.Before(q.After) || v.At.IsZero() {
		c.Level, c.Detail = Block, "what is known of the cluster is older than the step before"
	}
	if len(v.Nodes) == 0 {
		c.Level, c.Detail = Block, "the cluster lists no nodes"
	}
	if c.Level == Block {
		c.Hint = "see whether the nodes answer: tidal status"
	}
	return c
}

func checkMembers(v *View, q Question) Check {
	c := Check{Name: "members", Level: OK, Detail: "all that are expected, and no others"}
	var missing, more []string
	have := v.IDs()
	for _, id := range q.Expected {
		if !slices.Contains(have, id) {
			missing = append(missing, id)
		}
	}
	for _, id := range have {
		if len(q.Expected) > 0 && !slices.Contains(q.Expected, id) {
			more = append(more, id)
		}
	}
	for _, id := range q.Nodes {
		if !slices.Contains(have, id) && !slices.Contains(missing, id) {
			missing = append(missing, id)
		}
	}
	switch {
	case len(missing) > 0:
		c.Level, c.Detail = Block, fmt.Sprintf("incomplete: %d of %d expected nodes are members; missing: %s", len(q.Expected)-len(missing), len(q.Expected), names(missing))
		c.Hint = "make a new plan if that is meant: tidal roll plan"
	case len(more) > 0:
		c.Level, c.Detail = Block, "nodes that the plan does not know: "+names(more)
		c.Hint = "make a new plan: tidal roll plan"
	}
	return c
}

// checkBudget counts the other nodes that are not ready: what is down already
// leaves no room for another, and by zone none for one of another zone.
func checkBudget(v *View, q Question) Check {
	limit := max(q.MaxUnavailable, 1)
	c := Check{Name: "budget", Level: OK, Detail: fmt.Sprintf("all other nodes are ready; %d may be down at once", limit)}
	var down, apart []string
	for i := range v.Nodes {
		n, rolled := &v.Nodes[i], slices.Contains(q.Nodes, v.Nodes[i].ID)
		if !n.Ready() && !rolled {
			down = append(down, fmt.Sprintf("%s (%s)", n.ID, n.why()))
		}
		if (!n.Ready() || rolled) && q.ByZone && len(q.Nodes) > 0 && q.zone(v, n.ID) != q.zone(v, q.Nodes[0]) {
			apart = append(apart, n.ID)
		}
	}
	if len(down) > 0 {
		c.Level, c.Detail = Warn, "not ready: "+names(down)
	}
	switch {
	case len(down) > 0 && len(down)+len(q.Nodes) > limit:
		c.Level = Block
		c.Detail += fmt.Sprintf("; with %s that would be %d, and %d may be down at once", strings.Join(q.Nodes, ", "), len(down)+len(q.Nodes), limit)
	case len(apart) > 0:
		c.Level = Block
		c.Detail += fmt.Sprintf("; only nodes of one zone may be down at once, and %s is of another than %s", q.Nodes[0], names(apart))
	}
	if c.Level == Block {
		c.Hint = "bring it back, or roll it first; /health of the node says why it is not ready"
	}
	return c
}

func checkClaims(v *View, q Question) Check {
	c := Check{Name: "claims", Level: OK, Detail: "nobody else claims the node"}
	for _, id := range q.Nodes {
		if n, ok := v.Node(id); ok && n.Claim != "" {
			c.Level, c.Detail = Block, fmt.Sprintf("the drain of node %s is claimed by %s", id, n.Claim)
			c.Hint = "wait until it is given up, or end it: tidal node undrain " + id
		}
	}
	return c
}

// checkMeta asks whether the metadata would keep its quorum. Where nothing is wrong, and
// the cluster is too small, there is nothing to bring back.
func checkMeta(v *View, q Question) Check {
	voters, kept := v.voters(q.Nodes)
	need := quorum(len(voters))
	c := Check{Name: "meta-quorum", Level: OK, Detail: fmt.Sprintf("the metadata keeps %d of its %d voters", len(kept), len(voters))}
	if len(voters) > 0 && len(kept) >= need {
		return c
	}
	c.Level, c.Detail = Block, fmt.Sprintf("the metadata would keep %d of its %d voters (%s) and needs %d", len(kept), len(voters), names(kept), need)
	c.Hint = "bring the other voters back first: tidal status"
	healthy := !slices.ContainsFunc(voters, func(id string) bool { return !slices.Contains(kept, id) && !slices.Contains(q.Nodes, id) })
	switch {
	case len(voters) == 0:
		c.Detail, c.Hint = "nobody is known to vote for the metadata", "see whether the nodes answer: tidal status"
	case len(voters) == 1 && healthy:
		c.Detail = "the only voter of the metadata is restarted: it stands still meanwhile"
		c.Hint = "accept it with --allow-unavailable, or add nodes first"
		if q.AllowUnavailable {
			c.Level, c.Hint = Warn, ""
		}
	case len(voters) == 2 && healthy:
		c.Detail += ": of two none can be restarted without standing still"
		c.Hint = "add a third node first"
	}
	return c
}

// checkTables asks of every table whether its quorum would survive.
func checkTables(v *View, q Question) Check {
	c := Check{Name: "table-quorum", Level: OK}
	var lost []string
	held := 0
	for i := range v.Tables {
		t := &v.Tables[i]
		if !t.on(q.Nodes) || len(t.Replicas) == 1 {
			continue
		}
		held++
		left, need := v.left(t, q.Nodes), quorum(len(t.Replicas))
		if len(left) < need {
			lost = append(lost, fmt.Sprintf("%s would keep %d of %d replicas that are level (%s) and needs %d", t.Name, len(left), len(t.Replicas), names(left), need))
		}
	}
	c.Detail = fmt.Sprintf("each of %d tables keeps its quorum", held)
	if len(lost) > 0 {
		c.Level, c.Detail = Block, listed("table ", lost, "; ")
		c.Hint = "bring the replicas back, or wait until they are level: tidal wait level; tidal tables describe NAME shows the lags"
	}
	return c
}

func checkSingles(v *View, q Question) Check {
	c := Check{Name: "table-single", Level: OK, Detail: "no table depends on this node alone"}
	var alone []string
	for i := range v.Tables {
		if t := &v.Tables[i]; len(t.Replicas) == 1 && t.on(q.Nodes) {
			alone = append(alone, t.Name)
		}
	}
	if len(alone) > 0 {
		c.Level, c.Detail = Warn, "requests of these tables wait until the node is back, and fail after 8 s: "+names(alone)
		if !q.AllowUnavailable {
			c.Level = Block
			c.Hint = "give them more replicas, or accept it with --allow-unavailable"
		}
	}
	return c
}

func checkOwners(v *View, q Question) Check {
	c := Check{Name: "owners", Level: OK, Detail: "every table has an owner"}
	var here, elsewhere []string
	for i := range v.Tables {
		switch t := &v.Tables[i]; {
		case t.Owner != "":
		case t.on(q.Nodes) && len(t.Replicas) > 1:
			here = append(here, t.Name)
		default:
			elsewhere = append(elsewhere, t.Name)
		}
	}
	switch {
	case len(here) > 0:
		c.Level, c.Detail, c.Hint = Block, "tables without an owner have replicas here: "+names(here), "see what they wait for: tidal tables describe NAME"
	case len(elsewhere) > 0:
		c.Level, c.Detail = Warn, "tables without an owner: "+names(elsewhere)
	}
	return c
}

func checkMoves(v *View, q Question) Check {
	c := Check{Name: "moves", Level: OK, Detail: "no replica is on its way"}
	var moving []string
	for i := range v.Tables {
		if t := &v.Tables[i]; t.Moving && t.on(q.Nodes) {
			moving = append(moving, t.Name)
		}
	}
	if len(moving) > 0 {
		c.Level, c.Detail, c.Hint = Block, "replicas are on their way: "+names(moving), "wait until they have arrived"
	}
	return c
}

func checkRefused(q Question) Check {
	if q.Kind == KindGeneric {
		return canaryRefused(q)
	}
	c := Check{Name: "refused", Level: OK, Detail: fmt.Sprintf("%d requests were refused since the roll began", q.Refused)}
	if q.Refused > q.MaxRefusals {
		c.Level = Block
		c.Detail += fmt.Sprintf("; at most %d may be", q.MaxRefusals)
		c.Hint = "GET /v1/node/requests and the nodes' logs say by whom and why; --max-refusals allows more"
	}
	return c
}

// zone returns the zone of a node: that of the plan while it has no lease to say one.
func (q *Question) zone(v *View, id string) string {
	if n, ok := v.Node(id); ok && n.Zone != "" {
		return n.Zone
	}
	return q.Zones[id]
}

// on reports whether the table has a replica on one of the nodes.
func (t *Table) on(nodes []string) bool {
	return slices.ContainsFunc(t.Replicas, func(r Replica) bool { return slices.Contains(nodes, r.Node) })
}

// names lists the first few of some names.
func names(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return listed("", list, ", ")
}

func listed(before string, list []string, between string) string {
	more := ""
	if n := len(list) - shownNames; n > 0 {
		list, more = list[:shownNames], fmt.Sprintf(" and %d more", n)
	}
	return before + strings.Join(list, between+before) + more
}
