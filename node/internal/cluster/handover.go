package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

const (
	handLimit = 2 * time.Second        // for one node to take a table
	handLook  = 250 * time.Millisecond // between two looks whether it has
	staySoon  = 10 * time.Second       // by then a table that is handed over has come
)

// stays are the tables that operators handed over lately, on this node's monotonic
// clock and in memory alone: what is said here ends with the node.
type stays struct {
	mu sync.Mutex
	of map[api.TableID]stay
}

// stay is an operator's word that a table stays with a node.
type stay struct {
	to    string
	by    string
	since time.Time
	until time.Time
}

func (s *stays) note(id api.TableID, x stay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[id] = x
}

// by returns who handed a table to a node, "" if nobody did.
func (s *stays) by(id api.TableID, to string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.of[id]; ok && x.to == to {
		return x.by
	}
	return ""
}

// staying returns which of the tables that this node owns stay here although their
// places are elsewhere, and forgets what is over: a word of a table that did not come
// soon, or has gone.
func (c *Cluster) staying(owned []api.TableID, now time.Time) map[api.TableID]bool {
	s := &c.stays
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) == 0 {
		return nil
	}
	out := map[api.TableID]bool{}
	for _, id := range owned {
		x, ok := s.of[id]
		if t, known := c.View().Table(id); ok && known && x.to == c.o.Node && now.Before(x.until) && settled(t, c.o.Node) {
			out[id] = true
		}
	}
	for id, x := range s.of {
		if !out[id] && now.Sub(x.since) > staySoon {
			delete(s.of, id)
		}
	}
	return out
}

// settled reports whether a node has a replica of a table that counts and is to stay.
func settled(t *wire.Table, node string) bool {
	r, holds := t.Replica(node)
	return holds && r.Voter && !r.Leaving
}

// HandTable has a table owned by another node: by the one that the order names, or
// by any that can. It returns once that is known here. Errors: bad-request,
// table-not-found, node-not-found, conflict if that node cannot own the table,
// precondition-failed, not-ready if it cannot yet, those of a table without an owner,
// and outcome-unknown.
func (c *Cluster) HandTable(ctx context.Context, name string, o api.HandOver, by api.Principal) (api.Table, error) {
	ttl, err := o.Duration()
	if err != nil {
		return api.Table{}, err
	}
	t, err := c.Named(ctx, name)
	if err != nil {
		return api.Table{}, err
	}
	if o.ID != nil && *o.ID != t.ID {
		return api.Table{}, &api.Error{Code: api.CodePreconditionFailed, Message: fmt.Sprintf("table %s is another one now, with the id %s", name, t.ID)}
	}
	if o.To != "" {
		if err = c.mayOwn(t, o.To); err != nil {
			return api.Table{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, api.Patience)
	defer cancel()
	if err = c.handTable(ctx, t, &wire.HandOver{Table: t.ID, To: o.To, TTL: ttl, Owner: o.Owner, By: o.By, Principal: by}); err != nil {
		return api.Table{}, err
	}
	return c.Table(ctx, name)
}

// mayOwn returns why a node cannot own a table, nil if it can.
func (c *Cluster) mayOwn(t *wire.Table, node string) error {
	v := c.View()
	if _, known := v.Member(node); !known {
		return api.NoNode(node)
	}
	l, live := v.Lease(node)
	var why string
	switch {
	case !settled(t, node):
		why = "holds no replica of it that counts: those that do are on " + holders(t)
	case !live:
		why = "has no lease"
	case l.Draining:
		why = "drains"
	case c.crowded(node):
		why = "has hardly any disk space left"
	case !c.Sound(t.ID, node):
		why = "has a replica that differs from the others, and is fenced"
	default:
		return nil
	}
	return conflict("node %s cannot own table %s: it %s", node, t.Name, why)
}

// handTable asks the table's owner to give it away, and waits until another one is
// known here.
func (c *Cluster) handTable(ctx context.Context, t *wire.Table, w *wire.HandOver) error {
	told := ""
	var why error = &api.Error{Code: api.CodeNoOwner, Message: "nobody owns table " + t.Name + " now", RetryAfter: time.Second}
	for {
		change := c.changed.wait()
		route, _ := c.Find(t.Name)
		switch {
		case route.Table != t.ID:
			return noTable(t.Name)
		case route.Owner == "" || route.Owner == told:
		case told != "" && w.To != "" && route.Owner != w.To:
			return conflict("table %s went to node %s, and not to node %s", t.Name, route.Owner, w.To)
		case told != "":
			return nil
		default:
			to, err := c.askOwner(ctx, route.Owner, w)
			switch code := api.CodeOf(err); {
			case err == nil && to == route.Owner:
				return nil // it has it already
			case err == nil, code == "", code == api.CodeOutcomeUnknown:
				told, why = route.Owner, &api.Error{
					Code: api.CodeOutcomeUnknown, Message: fmt.Sprintf("node %s was told to hand table %s over, and no other owner is known yet", route.Owner, t.Name),
				}
				continue
			case code != api.CodeStaleOwner && code != api.CodeOwnerUnreachable:
				return err
			default:
				why = err
			}
		}
		if c.sleep(ctx, handLook, change) {
			return why
		}
	}
}

// askOwner passes an order on to the table's owner, which may be this node.
func (c *Cluster) askOwner(ctx context.Context, owner string, w *wire.HandOver) (to string, err error) {
	if owner == c.o.Node {
		return c.give(ctx, w)
	}
	b, err := c.Ask(ctx, owner, wire.MethodHandOver, wire.AppendHandOver(nil, w))
	if err != nil {
		return "", err
	}
	r := wire.NewReader(b)
	to = r.String("to", api.MaxNode)
	return to, r.Err()
}

// answerHandOver answers an operator's order to give a table away, and an owner's
// word that one comes.
func (c *Cluster) answerHandOver(ctx context.Context, payload []byte) ([]byte, error) {
	w, err := wire.DecodeHandOver(payload)
	if err != nil {
		return nil, err
	}
	if w.Principal.Role < api.RoleAdmin {
		return nil, &api.Error{Code: api.CodeForbidden, Message: w.Principal.Name + " is no admin: to hand a table over needs the role admin"}
	}
	if w.Keep {
		c.expectTable(&w)
		return nil, nil
	}
	to, err := c.give(ctx, &w)
	if err != nil {
		return nil, err
	}
	return wire.AppendString(nil, to), nil
}

// expectTable notes that a table is handed to a node and stays there for a while.
func (c *Cluster) expectTable(w *wire.HandOver) {
	now := time.Now()
	c.stays.note(w.Table, stay{to: w.To, by: w.By, since: now, until: now.Add(w.TTL)})
}

// give hands a table that this node owns to the node that the order names, or to the
// first that takes it, and returns which that is.
func (c *Cluster) give(ctx context.Context, w *wire.HandOver) (to string, err error) {
	t, known := c.View().Table(w.Table)
	l, open := c.o.Tables.Local(w.Table)
	switch {
	case !known || !open || !l.State.Owns:
		return "", &api.Error{Code: api.CodeStaleOwner, Owner: l.Leader, Message: "node " + c.o.Node + " does not own the table"}
	case w.Owner != nil && *w.Owner != c.o.Identity.Incarnation:
		return "", &api.Error{
			Code:    api.CodePreconditionFailed,
			Message: fmt.Sprintf("table %s is owned by %s now, and not by %s", t.Name, c.o.Identity.Incarnation, *w.Owner),
		}
	case w.To == c.o.Node:
		c.expectTable(w)
		return w.To, nil
	}
	takers := []string{w.To}
	if w.To == "" {
		takers = c.takers(t)
	}
	err = conflict("no other node can own table %s now: it needs a replica that counts, on a node that lives and does not drain", t.Name)
	for _, node := range takers {
		if err = c.giveTo(ctx, t, w, node); err == nil {
			return node, nil
		}
	}
	return "", err
}

// takers returns the other nodes that could own a table: its place first, then those
// that own least.
func (c *Cluster) takers(t *wire.Table) []string {
	place, owned := c.places()[t.ID], map[string]int{}
	for _, o := range c.directory.owners(c.o.Node) {
		owned[o.node]++
	}
	list := slices.DeleteFunc(c.holders(t.ID), c.crowded)
	slices.SortFunc(list, func(a, b string) int {
		switch {
		case a == place:
			return -1
		case b == place:
			return 1
		case owned[a] != owned[b]:
			return owned[a] - owned[b]
		}
		return strings.Compare(a, b)
	})
	return list
}

// giveTo tells a node that a table comes and is to stay, and hands it over. That one
// would give it back at once otherwise, if its place is here.
func (c *Cluster) giveTo(ctx context.Context, t *wire.Table, w *wire.HandOver, node string) error {
	ctx, cancel := context.WithTimeout(ctx, handLimit)
	defer cancel()
	word := *w
	word.Keep, word.To, word.Owner = true, node, nil
	if _, err := c.Ask(ctx, node, wire.MethodHandOver, wire.AppendHandOver(nil, &word)); err != nil {
		c.o.Log.DebugContext(ctx, "a table could not be announced", "table", t.Name, "to", node, "error", err)
		return &api.Error{Code: api.CodeNotReady, Message: "node " + node + " does not answer, or is of a release that takes no such order", RetryAfter: time.Second}
	}
	c.expectTable(&word) // for who tells why it went
	if err := c.o.Tables.HandOver(ctx, t.ID, node); err != nil {
		c.o.Log.DebugContext(ctx, "table not handed over", "table", t.Name, "to", node, "error", err)
		return &api.Error{
			Code: api.CodeNotReady, RetryAfter: time.Second,
			Message: fmt.Sprintf("node %s does not take table %s now: its replica lacks too much, or did not answer in time", node, t.Name),
		}
	}
	c.noteMoved(t.ID)
	c.o.Log.InfoContext(ctx, "table handed over", "table", t.Name, "table_id", t.ID.String(), "to", node, "by", w.By, "for", w.TTL)
	return nil
}
