package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

const (
	askAgain   = 200 * time.Millisecond // between two asks to be let go
	askStands  = 2 * time.Second        // how long one counts
	doubtStand = 5 * time.Second        // how long a withdrawal whose end is unknown counts as done
	aloneFor   = time.Second            // how long there must be nobody to ask before a node goes unasked
	knowMost   = 3 * time.Second        // for finding out whether this node was let go
)

// asked is who asks the meta leader to be let go, and who may have been without
// the leader knowing it. It is the leader's memory alone.
type asked struct {
	mu    sync.Mutex
	at    map[string]time.Time // by node: its last ask
	doubt map[string]time.Time // by node: when its withdrawal was proposed
}

func (a *asked) note(node string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil {
		a.at, a.doubt = map[string]time.Time{}, map[string]time.Time{}
	}
	a.at[node] = now
}

func (a *asked) doubts(node string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubt[node] = now
}

// asks reports whether a node asks to be let go, and whether it may be gone.
func (a *asked) asks(node string, now time.Time) (asking, gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.at[node]
	doubt, doubted := a.doubt[node]
	return ok && now.Sub(at) < askStands, doubted && now.Sub(doubt) < doubtStand
}

// AwaitReleased waits until every live node has said that it routes no table to
// this one any more, but for those that it owns still. It returns the nodes that
// had not when ctx ended.
func (c *Cluster) AwaitReleased(ctx context.Context) []string {
	var mu sync.Mutex
	var missing []string
	var g errgroup.Group
	for _, m := range c.View().Members {
		if m.Node == c.o.Node {
			continue
		}
		g.Go(func() error {
			if !c.releasedBy(ctx, m.Node) {
				mu.Lock()
				defer mu.Unlock()
				missing = append(missing, m.Node)
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no errors
	slices.Sort(missing)
	return missing
}

// releasedBy asks one node until it has said so, has no lease, or ctx ends.
func (c *Cluster) releasedBy(ctx context.Context, node string) bool {
	for {
		if _, live := c.View().Lease(node); !live {
			return true // it learns who owns what before it serves
		}
		if c.metaLeader() == "" && !c.heard(node) {
			return true // its lease stands still, and nothing of it comes here
		}
		kept := c.directory.owns() // another node that drains may have just handed some over
		payload := wire.AppendUvarint(nil, uint64(len(kept)))
		for _, id := range kept {
			payload = wire.AppendUvarint(payload, uint64(id))
		}
		call, cancel := context.WithTimeout(ctx, time.Second)
		_, err := c.Ask(call, node, wire.MethodReleased, payload)
		cancel()
		if err == nil || api.CodeOf(err) == api.CodeBadRequest { // a release that cannot say
			return true
		}
		if c.sleep(ctx, 50*time.Millisecond, nil) {
			return false
		}
	}
}

// answerReleased returns once this node routes no table to another one, but for
// those that the other one keeps.
func (c *Cluster) answerReleased(ctx context.Context, node string, payload []byte) error {
	r := wire.NewReader(payload)
	kept := map[api.TableID]bool{}
	for range r.Count("tables kept", 1) {
		kept[api.TableID(r.Uvarint("table kept"))] = true
	}
	if err := r.Done(); err != nil {
		return err
	}
	for {
		change := c.changed.wait()
		name := c.routedTo(node, kept)
		if name == "" {
			return nil
		}
		if c.sleep(ctx, 100*time.Millisecond, change) {
			return &api.Error{Code: api.CodeNotReady, Message: fmt.Sprintf("node %s still routes table %s to node %s", c.o.Node, name, node)}
		}
	}
}

// routedTo returns a table that this node routes to another one; "" if none.
func (c *Cluster) routedTo(node string, but map[api.TableID]bool) string {
	for _, t := range c.View().Tables {
		if r, ok := c.Find(t.Name); ok && r.Owner == node && !but[t.ID] {
			return t.Name
		}
	}
	return ""
}

// AwaitLeave withdraws this node's lease once no table and not the meta group
// would lose its quorum by that: the meta leader decides, one node at a time, so
// that nodes told to stop at once go one after the other. A node without which no
// quorum is lost, since none is left, goes unasked: nobody can let it go. The error
// is that of the last try when ctx ended; the lease may be gone all the same, see
// HasLeft.
func (c *Cluster) AwaitLeave(ctx context.Context) error {
	var last error
	var alone time.Time // since when; zero: it is not
	for c.Formed() && !c.Left() {
		change := c.changed.wait()
		switch {
		case !c.alone():
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) >= aloneFor:
			c.o.Log.InfoContext(ctx, "going unasked: no quorum is left that this node could take with it")
			c.leaves()
			return nil
		}
		err := c.askLeave(ctx)
		if err == nil {
			c.leaves()
			return nil
		}
		if ctx.Err() == nil || last == nil {
			if last == nil || publicCause(last) != publicCause(err) {
				c.o.Log.InfoContext(ctx, "waiting to be let go", "reason", publicCause(err))
			}
			last = err
		}
		if c.sleep(ctx, askAgain, change) && !c.Left() {
			return last
		}
	}
	return nil
}

// Left reports whether this run's lease is withdrawn, as far as is known here. It may be
// though nobody has said so: the answer can be lost, or come too late.
func (c *Cluster) Left() bool {
	if m, known := c.View().Member(c.o.Node); known && m.Left && m.Last == c.o.Identity.Incarnation {
		c.leaves()
	}
	return c.left.Load()
}

func (c *Cluster) leaves() {
	if !c.left.Swap(true) {
		close(c.gone)
	}
}

// Gone returns a channel that is closed once Left is noticed to be true. A run that
// meant to stay must end then: it gets no other lease.
func (c *Cluster) Gone() <-chan struct{} { return c.gone }

// HasLeft is Left as the meta group knows it, if that can be found out in some seconds.
// A withdrawal that is still on its way there it cannot see.
func (c *Cluster) HasLeft(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, knowMost)
	defer cancel()
	if err := c.Fresh(ctx); err != nil {
		c.o.Log.WarnContext(ctx, "whether the lease is withdrawn is not known", "error", err)
	}
	return c.Left()
}

// alone reports whether the meta group has no leader, and no group of which this
// node is a voter has a quorum among the nodes that are heard here. Either the
// others have it without this node, or nobody has: its end changes nothing.
func (c *Cluster) alone() bool {
	if c.metaLeader() != "" {
		return false
	}
	v := c.View()
	heard := map[string]bool{}
	for _, m := range v.Members {
		heard[m.Node] = m.Node != c.o.Node && c.heard(m.Node)
	}
	return !needed(v, c.o.Node, heard)
}

// needed reports whether a group that can do without a node could have a quorum of it
// and the nodes that are heard.
func needed(v *meta.View, node string, heard map[string]bool) bool {
	var voters []string
	for _, m := range v.Members {
		if m.Voter {
			voters = append(voters, m.Node)
		}
	}
	if quorumOf(voters, node, heard) {
		return true
	}
	for _, t := range v.Tables {
		voters = voters[:0]
		for _, r := range t.Replicas {
			if r.Voter {
				voters = append(voters, r.Node)
			}
		}
		if quorumOf(voters, node, heard) {
			return true
		}
	}
	return false
}

// quorumOf reports whether a node and those that are heard are a quorum of voters,
// of which the node is one and not all that there can be.
func quorumOf(voters []string, node string, heard map[string]bool) bool {
	quorum, live := len(voters)/2+1, 1
	for _, n := range voters {
		if heard[n] {
			live++
		}
	}
	return slices.Contains(voters, node) && len(voters)-1 >= quorum && live >= quorum
}

func (c *Cluster) askLeave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	switch leader := c.metaLeader(); leader {
	case "":
		return &api.Error{Code: api.CodeNotReady, Message: "the meta group has no leader"}
	case c.o.Node:
		return c.letGo(ctx, c.o.Identity.Incarnation)
	default:
		_, err := c.Ask(ctx, leader, wire.MethodWithdraw, nil)
		return err
	}
}

// letGo withdraws the lease of a node that stops, as the meta group's leader, or
// says what would lose its quorum. The withdrawal is a log entry, and the next
// node is judged by a state that holds it, also by the next leader.
func (c *Cluster) letGo(ctx context.Context, inc api.Incarnation) error {
	select {
	case c.exits <- struct{}{}:
		defer func() { <-c.exits }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !c.leadsMeta() {
		return c.notMetaLeader()
	}
	now := time.Now()
	c.asked.note(inc.Node, now)
	v := c.View()
	stays, allStop := c.stayers(v, inc.Node, now)
	if why := lostWithout(v, inc.Node, stays, c.crowded); why != "" && !allStop {
		return &api.Error{Code: api.CodeNotReady, Message: "without node " + inc.Node + " " + why, RetryAfter: askAgain}
	}
	a, err := c.lead(ctx, &wire.MetaCommand{Kind: wire.MetaWithdrawLease, ID: newID(), Incarnation: inc})
	if err != nil {
		c.asked.doubts(inc.Node, now)
		return err
	}
	return a.Err()
}

// stayers returns the nodes other than one that count for quorums, and whether
// there is nobody else who does not ask to be let go: then the whole cluster
// stops, and waiting saves nothing.
func (c *Cluster) stayers(v *meta.View, but string, now time.Time) (stays map[string]bool, allStop bool) {
	stays, allStop = map[string]bool{}, true
	for _, l := range v.Leases {
		n := l.Incarnation.Node
		asking, gone := c.asked.asks(n, now)
		if n == but || gone || n != c.o.Node && !c.heard(n) {
			continue
		}
		stays[n] = true
		allStop = allStop && asking
	}
	return stays, allStop
}

// lostWithout returns which group would lose the quorum that it has if a node
// went, for people; "" if none would. A group that cannot do without the node,
// however many others are there, waits for nobody. For writes crowded nodes do not
// count: a table loses that quorum too, if it has it.
func lostWithout(v *meta.View, node string, stays map[string]bool, crowded func(node string) bool) string {
	roomy := maps.Clone(stays)
	maps.DeleteFunc(roomy, func(n string, _ bool) bool { return crowded(n) })

	var voters []string
	for _, m := range v.Members {
		if m.Voter {
			voters = append(voters, m.Node)
		}
	}
	if why := shortOf(voters, node, stays); why != "" {
		return "the metadata would have " + why
	}
	for _, t := range v.Tables {
		voters = voters[:0]
		for _, r := range t.Replicas {
			if r.Voter {
				voters = append(voters, r.Node)
			}
		}
		if why := shortOf(voters, node, stays); why != "" {
			return "table " + t.Name + " would have " + why
		}
		if why := shortOf(voters, node, roomy); why != "" && !crowded(node) {
			return "table " + t.Name + " would have, with space on the disk, " + why
		}
	}
	return ""
}

func shortOf(voters []string, node string, stays map[string]bool) string {
	quorum := len(voters)/2 + 1
	if !slices.Contains(voters, node) || len(voters)-1 < quorum {
		return ""
	}
	live := 0
	for _, n := range voters {
		if stays[n] {
			live++
		}
	}
	if live >= quorum || live+1 < quorum {
		return ""
	}
	return fmt.Sprintf("%d of the %d voters that it needs, of %s", live, quorum, strings.Join(voters, ", "))
}

// Withdraw ends this node's lease, if AwaitLeave has not, as the last thing that
// it says.
func (c *Cluster) Withdraw(ctx context.Context) {
	if !c.Formed() || c.Left() {
		return
	}
	cmd := &wire.MetaCommand{Kind: wire.MetaWithdrawLease, ID: newID(), Incarnation: c.o.Identity.Incarnation}
	if _, err := c.propose(ctx, cmd); err != nil {
		c.o.Log.WarnContext(ctx, "the lease could not be withdrawn: it runs out by itself", "error", err)
	}
}

// NodeStatus fills in what this node's view says of every member.
func (c *Cluster) NodeStatus() []api.Node {
	s := c.Status()
	owned := map[string]int{}
	for _, t := range s.Tables {
		owned[t.Owner]++
	}
	out := make([]api.Node, 0, len(s.Members))
	for _, m := range s.Members {
		out = append(out, api.Node{Member: m, Owned: owned[m.Node], Leads: m.Node == s.MetaLeader})
	}
	return out
}
