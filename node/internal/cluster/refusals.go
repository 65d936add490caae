package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

const (
	refusalLasts = 10 * time.Minute // after the last attempt
	maxRefusals  = 64
)

// refusals is whom this node has refused lately. Who is refused tries again and
// again, so it is listed while it does, and a little longer.
type refusals struct {
	mu struct {
		sync.Mutex
		all map[refusalKey]api.Refusal
	}
}

type refusalKey struct {
	inc  api.Incarnation
	disk api.DiskID
}

func (r *refusals) init() { r.mu.all = map[refusalKey]api.Refusal{} }

// note takes a refusal, and reports whether it is news.
func (r *refusals) note(x api.Refusal, now time.Time) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked(now)
	key := refusalKey{x.Incarnation, x.Disk}
	old, known := r.mu.all[key]
	if !known && len(r.mu.all) >= maxRefusals { // anybody can say anything in a hello
		return false
	}
	x.Since, x.Last = now, now
	if known {
		x.Since = old.Since
	}
	r.mu.all[key] = x
	return !known
}

func (r *refusals) expireLocked(now time.Time) {
	maps.DeleteFunc(r.mu.all, func(_ refusalKey, x api.Refusal) bool { return now.Sub(x.Last) > refusalLasts })
}

// list returns them by their nodes. A node whose certificate is refused has not
// said who it is; it is listed for as long as there is no connection: see refusedBy.
func (r *refusals) list(now time.Time) []api.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked(now)
	heard := maps.Clone(r.mu.all)
	maps.DeleteFunc(heard, func(of refusalKey, _ api.Refusal) bool { return of.inc.Start == 0 })
	return slices.SortedFunc(maps.Values(heard), func(a, b api.Refusal) int {
		return cmp.Or(a.Incarnation.Compare(b.Incarnation), a.Since.Compare(b.Since))
	})
}

// Refused takes word that this node refuses a remote, or what it asked for.
func (c *Cluster) Refused(remote wire.Hello, why *api.Error) {
	x := api.Refusal{
		Node: remote.Incarnation.Node, Incarnation: remote.Incarnation, Disk: remote.Disk, By: c.o.Node,
		Reason: why.Message, Hint: why.Hint,
	}
	if c.refusals.note(x, time.Now().UTC()) {
		e := api.Event{Kind: api.EventNodeRefused, Member: x.Node, From: c.o.Node, Why: x.Reason}
		log := c.o.Log
		if x.Incarnation.Start != 0 { // it said who it is
			e.Incarnation = &x.Incarnation
			log = log.With("peer_incarnation", x.Incarnation.String(), "disk", x.Disk.String())
		}
		c.o.Events(e)
		log.Warn("node refused", "peer", x.Node, "reason", x.Reason, "hint", x.Hint)
	}
}

// Fenced takes word of a member that this node's disk is not the one that it was.
// The node takes no part any more: it has no lease, and serves nothing.
func (c *Cluster) Fenced(by api.Incarnation, why *api.Error) {
	c.fenced.Store(&api.Error{
		Code: api.CodeWrongDisk, Hint: why.Hint,
		Message: fmt.Sprintf("node %s takes no part in the cluster: %s refuses it: %s", c.o.Node, by, why.Message),
	})
	if err := writeFence(c.o.DB, c.fenced.Load()); err != nil {
		c.o.Log.Error("that this disk takes no part any more is not written to it", "error", err)
	}
	c.o.Log.Error("this node takes no part in the cluster any more", "peer_incarnation", by.String(), "reason", why.Message, "hint", why.Hint)
	own := c.o.Identity.Incarnation
	c.o.Events(api.Event{Kind: api.EventNodeRefused, Member: c.o.Node, Incarnation: &own, From: by.Node, Why: why.Message})
	c.setLease(leaseState{why: fmt.Sprintf("%s refuses this node", by)})
}

// Outcast returns why this node takes no part in the cluster any more, or nil.
func (c *Cluster) Outcast() error {
	if why := c.fenced.Load(); why != nil {
		return why
	}
	return nil
}

// refusedBy returns the refusals of this node by its peers, now.
func (c *Cluster) refusedBy(now time.Time) []api.Refusal {
	var out []api.Refusal
	for _, m := range c.members() {
		if m.Node == c.o.Node {
			continue
		}
		if why := c.o.Net.Refusal(m.Node); why != nil {
			out = append(out, api.Refusal{
				Node: c.o.Node, Incarnation: c.o.Identity.Incarnation, Disk: c.o.Identity.Disk, By: m.Node,
				Reason: why.Message, Hint: why.Hint, Since: now, Last: now,
			})
		}
	}
	return out
}

// RefusedBy says for people which peers refuse this node and why, a line for each
// reason.
func (c *Cluster) RefusedBy() []string {
	by := map[string][]string{} // reason to nodes
	for _, x := range c.refusedBy(time.Time{}) {
		reason := x.Reason
		if x.Hint != "" {
			reason += "; " + x.Hint
		}
		by[reason] = append(by[reason], x.By)
	}
	var out []string
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		who := "node " + by[reason][0] + " refuses"
		if n := by[reason]; len(n) > 1 {
			who = "nodes " + strings.Join(n, ", ") + " refuse"
		}
		out = append(out, who+" this node: "+reason)
	}
	return out
}
