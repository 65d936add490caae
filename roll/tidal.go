package roll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
	"tidal/node/client"
)

// asksAtOnce bounds how many nodes are asked side by side, and nodeAnswers for how
// long each.
const (
	asksAtOnce  = 10
	nodeAnswers = 3 * time.Second

	// A replica hears what is committed a heartbeat late: it is given that time.
	levelLooks = 3
	levelRest  = 150 * time.Millisecond
)

// Tidal is a cluster of tidal nodes, which are restarted in place.
type Tidal struct {
	Client *client.Client
	Binary string // SHA-256 of what nodes restart to; "": what stands at their paths

	mu struct {
		sync.Mutex
		addresses map[string]string // of the last view
	}
}

// View implements Cluster. Each node is asked at its own address; what it did not
// say is not taken for good.
func (c *Tidal) View(ctx context.Context) (*View, error) {
	at := time.Now()
	s, err := c.Client.FreshStatus(ctx)
	if err != nil {
		return nil, err
	}
	v := membersOf(&s)
	v.At = at
	c.remember(v)
	ends, held := frontiers{}, c.locals(ctx, v)
	for n := range levelLooks {
		if n > 0 && !sleep(ctx, levelRest) {
			break
		}
		if n > 0 && len(ends) < len(s.Tables) { // a table went from one node to another just then
			if now, again := c.Client.FreshStatus(ctx); again == nil {
				s.Tables = now.Tables
			}
		}
		ends.note(s.Tables, held)
		if held = c.locals(ctx, v); ctx.Err() != nil {
			if n == 0 {
				return nil, fmt.Errorf("not every node could be asked: %w", ctx.Err())
			}
			break // what the last look found stands
		}
		v.Tables = v.Tables[:0]
		for _, t := range s.Tables {
			v.Tables = append(v.Tables, tableOf(&t, ends, held))
		}
		if !slices.ContainsFunc(v.Tables, func(t Table) bool { return behind(v, &t) }) {
			break
		}
	}
	c.claims(ctx, v)
	return v, nil
}

// membersOf returns a view of the members as a status has them.
func membersOf(s *api.Status) *View {
	v := &View{}
	v.Cluster, v.ClusterID, v.MetaLeader = s.Cluster, s.ClusterID.String(), s.MetaLeader
	for _, m := range s.Members {
		n := Node{ID: m.Node, Address: m.Address, Disk: m.Disk.String(), MetaVoter: m.Voter}
		if l := m.Lease; l != nil {
			n.Address, n.Zone, n.Version = l.Address, l.Zone, l.Version
			n.Incarnation, n.Draining = l.Incarnation.String(), l.Draining
		}
		v.Nodes = append(v.Nodes, n)
	}
	slices.SortFunc(v.Nodes, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	return v
}

// behind reports whether a replica of a table on a node that answers is not level.
func behind(v *View, t *Table) bool {
	return slices.ContainsFunc(t.Replicas, func(r Replica) bool {
		n, ok := v.Node(r.Node)
		return ok && n.Live() && !r.Level
	})
}

func (c *Tidal) remember(v *View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.addresses == nil {
		c.mu.addresses = map[string]string{}
	}
	for _, n := range v.Nodes {
		c.mu.addresses[n.ID] = n.Address
	}
}

func (c *Tidal) address(node string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.mu.addresses[node]
	if !ok {
		return "", fmt.Errorf("the address of node %s is not known", node)
	}
	return a, nil
}

// locals asks every node with a lease what it holds and how it is.
func (c *Tidal) locals(ctx context.Context, v *View) map[string]map[api.TableID]api.LocalTable {
	out := make([]map[api.TableID]api.LocalTable, len(v.Nodes))
	var g errgroup.Group
	g.SetLimit(asksAtOnce)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.Incarnation == "" || n.Silent != "" {
			continue
		}
		g.Go(func() error {
			var err error
			if out[i], err = c.local(ctx, n); err != nil && ctx.Err() == nil { // else there was no time to ask it
				n.Silent = err.Error()
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no errors
	all := map[string]map[api.TableID]api.LocalTable{}
	for i := range v.Nodes {
		all[v.Nodes[i].ID] = out[i]
	}
	return all
}

func (c *Tidal) local(ctx context.Context, n *Node) (map[api.TableID]api.LocalTable, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeAnswers)
	defer cancel()
	l, err := c.Client.LocalStatus(ctx, n.Address)
	if err != nil {
		return nil, err
	}
	if l.Incarnation.String() != n.Incarnation {
		return nil, fmt.Errorf("at its address answers %s", l.Incarnation)
	}
	h, err := c.Client.Health(ctx, n.Address)
	if err != nil {
		return nil, err
	}
	held := map[api.TableID]api.LocalTable{}
	n.Owned, n.Wrong = 0, nil
	for _, t := range l.Tables {
		held[t.ID] = t
		if t.Owns {
			n.Owned++
		}
	}
	for _, r := range h.Reasons {
		text := r.Detail
		if r.Table != "" {
			text = "table " + r.Table + ": " + text
		}
		n.Wrong = append(n.Wrong, text)
	}
	return held, nil
}

// claims notes who claims the drains of nodes. A roll's own claim is none: the
// lock says whose that is.
func (c *Tidal) claims(ctx context.Context, v *View) {
	if !slices.ContainsFunc(v.Nodes, func(n Node) bool { return n.Draining }) {
		return
	}
	list, err := c.Client.Nodes(ctx)
	if err != nil {
		return // a node that drains is not ready, whoever claims it
	}
	for _, x := range list {
		if n, ok := v.Node(x.Node); ok && x.Claim != nil && x.Claim.Roll == 0 {
			n.Claim = x.Claim.By
		}
	}
}

// frontiers is what the owners of tables had committed when they were asked first.
type frontiers map[api.TableID]uint64

// note adds the tables whose owner owns them, as it says itself.
func (f frontiers) note(tables []api.Table, held map[string]map[api.TableID]api.LocalTable) {
	for _, t := range tables {
		if l, ok := held[t.Owner][t.ID]; ok && l.Owns {
			if _, known := f[t.ID]; !known {
				f[t.ID] = l.Commit
			}
		}
	}
}

// tableOf finds out which replicas of a table are level: they have applied what
// its owner had committed when it was asked first.
func tableOf(t *api.Table, ends frontiers, held map[string]map[api.TableID]api.LocalTable) Table {
	out := Table{Name: t.Name, Owner: t.Owner, Place: t.Place}
	frontier, known := ends[t.ID]
	for _, r := range t.Replicas {
		out.Moving = out.Moving || r.Leaving || !r.Voter
		if !r.Voter {
			continue
		}
		l, ok := held[r.Node][t.ID]
		out.Replicas = append(out.Replicas, Replica{Node: r.Node, Level: known && ok && l.Applied >= frontier})
	}
	return out
}

func order(h Hold) api.NodeOrder {
	return api.NodeOrder{TTL: api.DefaultClaim.String(), Roll: h.Roll, Epoch: h.Epoch, By: h.By}
}

// Drain implements Cluster.
func (c *Tidal) Drain(ctx context.Context, node string, h Hold) (int, error) {
	r, err := c.Client.DrainNode(ctx, node, order(h))
	return r.Owned, err
}

// Undrain implements Cluster.
func (c *Tidal) Undrain(ctx context.Context, node string, h Hold) error {
	_, err := c.Client.UndrainNode(ctx, node, order(h))
	return err
}

// Restart implements Driver: the node becomes what its binary and configuration
// are now, without closing its port.
func (c *Tidal) Restart(ctx context.Context, n Node, h Hold) error {
	o := order(h)
	o.Binary = c.Binary
	_, err := c.Client.RestartNode(ctx, n.ID, o)
	if errors.Is(err, client.ErrUnreachable) && !errors.Is(err, client.ErrTLS) {
		return &api.Error{Code: api.CodeNotReady, Message: err.Error()}
	}
	return err
}

// Routes implements Cluster.
func (c *Tidal) Routes(ctx context.Context, node string) ([]string, error) {
	s, err := c.Client.Status(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var out []string
	var g errgroup.Group
	g.SetLimit(asksAtOnce)
	for _, m := range s.Members {
		if m.Lease == nil || m.Node == node {
			continue
		}
		g.Go(func() error {
			call, cancel := context.WithTimeout(ctx, nodeAnswers)
			defer cancel()
			now, err := c.Client.StatusOf(call, m.Lease.Address)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || slices.ContainsFunc(now.Tables, func(t api.Table) bool { return t.Owner == node && len(t.Replicas) > 1 }) {
				out = append(out, m.Node)
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no errors
	slices.Sort(out)
	return out, nil
}

// meet learns where the nodes are, unless there was a view: who resumes a roll counts
// before it looks.
func (c *Tidal) meet(ctx context.Context) error {
	c.mu.Lock()
	met := c.mu.addresses != nil
	c.mu.Unlock()
	if met {
		return nil
	}
	s, err := c.Client.Status(ctx)
	if err == nil {
		c.remember(membersOf(&s))
	}
	return err
}

// Requests implements Cluster.
func (c *Tidal) Requests(ctx context.Context, node string) (api.RequestReport, error) {
	if err := c.meet(ctx); err != nil {
		return api.RequestReport{}, err
	}
	a, err := c.address(node)
	if err != nil {
		return api.RequestReport{}, err
	}
	return c.Client.Requests(ctx, a)
}
