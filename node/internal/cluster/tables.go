package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tidal/node/api"
	"tidal/node/internal/place"
	"tidal/node/internal/wire"
)

// CreateTable makes a table, or finds the one there is with the same settings. It
// returns once the table has an owner and every live node can route to it.
func (c *Cluster) CreateTable(ctx context.Context, name string, s api.TableSettings) (t api.Table, created bool, err error) {
	if err = api.CheckTable(name); err != nil {
		return api.Table{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, api.Patience)
	defer cancel()
	cmd := &wire.MetaCommand{Kind: wire.MetaCreateTable, ID: newID(), Name: name, Wanted: s.Replicas}
	a, err := c.propose(ctx, cmd)
	if err != nil {
		return api.Table{}, false, err
	}
	if err = c.everywhere(ctx, name, a.Table, true); err != nil {
		return api.Table{}, false, err
	}
	t, err = c.Table(ctx, name)
	return t, a.Changed, err
}

// DropTable removes a table for ever. It returns once no live node routes to it.
func (c *Cluster) DropTable(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, api.Patience)
	defer cancel()
	t, err := c.Named(ctx, name)
	if err != nil {
		return err
	}
	cmd := &wire.MetaCommand{Kind: wire.MetaDropTable, ID: newID(), Name: name, Table: t.ID}
	if _, err = c.propose(ctx, cmd); err != nil {
		return err
	}
	return c.everywhere(ctx, name, t.ID, false)
}

// Named returns the table that has a name now. Before it says that there is none, it has
// all that the meta group had agreed on when it was called: this node may have stood
// still, or may be new. Errors: table-not-found, and not-ready if nobody can say.
func (c *Cluster) Named(ctx context.Context, name string) (*wire.Table, error) {
	if t, ok := c.View().TableNamed(name); ok {
		return t, nil
	}
	if err := c.Fresh(ctx); err != nil {
		return nil, err
	}
	if t, ok := c.View().TableNamed(name); ok {
		return t, nil
	}
	return nil, noTable(name)
}

func noTable(name string) *api.Error {
	return &api.Error{
		Code: api.CodeTableNotFound, Message: "there is no table " + name,
		Hint: "GET /v1/tables lists the tables; PUT /v1/tables/" + name + " creates it",
	}
}

// chooseNodes picks the nodes for a new table's replicas. Only the meta leader
// does, so that two tables do not choose on the same picture.
func (c *Cluster) chooseNodes(cmd *wire.MetaCommand) ([]string, error) {
	v := c.View()
	held := c.loads.get(v)
	var nodes []place.Candidate
	for _, l := range v.Leases {
		if !l.Draining {
			n := l.Incarnation.Node
			nodes = append(nodes, place.Candidate{Node: n, Zone: l.Zone, Load: held[n]})
		}
	}
	n := cmd.Wanted
	if n == 0 {
		// The default is of the members, not of who is up just now: a table made
		// while a node restarts must not stay without its third replica.
		n = min(api.DefaultReplicas, len(v.Members))
		for _, m := range v.Members {
			if _, live := v.Lease(m.Node); !live && len(nodes) < n {
				nodes = append(nodes, place.Candidate{Node: m.Node, Zone: m.Zone, Load: held[m.Node]})
			}
		}
	}
	return place.Choose(nodes, n, cmd.Name)
}

// everywhere waits until this node and every other live one routes to a table,
// or, if it is to be gone, until none does.
func (c *Cluster) everywhere(ctx context.Context, name string, id api.TableID, present bool) error {
	payload := wire.AppendBool(wire.AppendUvarint(wire.AppendString(nil, name), uint64(id)), present)
	if err := c.answerAwait(ctx, payload); err != nil {
		return err
	}
	for _, m := range c.View().Members {
		for m.Node != c.o.Node {
			if _, live := c.View().Lease(m.Node); !live {
				break // it reads the tables before it serves
			}
			_, err := c.Ask(ctx, m.Node, wire.MethodAwait, payload)
			if err == nil {
				break
			}
			if c.sleep(ctx, 100*time.Millisecond, nil) {
				return &api.Error{
					Code:    api.CodeNotReady,
					Message: fmt.Sprintf("the change of table %s is made, and node %s has not taken it over in time", name, m.Node),
				}
			}
		}
	}
	return nil
}

// answerAwait returns once this node routes to a table, or no longer does.
func (c *Cluster) answerAwait(ctx context.Context, payload []byte) error {
	r := wire.NewReader(payload)
	name := r.String("table name", api.MaxTable)
	id := api.TableID(r.Uvarint("table id"))
	present := r.Bool("present")
	if err := r.Done(); err != nil {
		return err
	}
	for {
		change := c.changed.wait()
		route, ok := c.Find(name)
		is := ok && route.Table == id
		if is && route.Owner != "" && present || !is && !present {
			return nil
		}
		if c.sleep(ctx, 250*time.Millisecond, change) {
			return &api.Error{Code: api.CodeNotReady, Message: fmt.Sprintf("node %s does not see the change of table %s yet", c.o.Node, name)}
		}
	}
}

// Table describes a table.
func (c *Cluster) Table(ctx context.Context, name string) (api.Table, error) {
	info, err := c.Named(ctx, name)
	if err != nil {
		return api.Table{}, err
	}
	t := c.describe(info, c.places())
	lags, err := c.lags(ctx, info.ID, t.Owner)
	if err != nil {
		return t, nil //nolint:nilerr // who lags is known to the owner alone; the rest is still true
	}
	for i := range t.Replicas {
		if lag, known := lags[info.Replicas[i].ID]; known {
			t.Replicas[i].Lag = &lag
		}
	}
	return t, nil
}

// Tables describes all tables, in the order of their ids, without lags.
func (c *Cluster) Tables(context.Context) ([]api.Table, error) {
	places := c.places()
	out := []api.Table{}
	for _, info := range c.View().Tables {
		out = append(out, c.describe(info, places))
	}
	return out, nil
}

func (c *Cluster) describe(info *wire.Table, places map[api.TableID]string) api.Table {
	route, _ := c.Find(info.Name)
	return api.Table{
		Name: info.Name, ID: info.ID, Owner: route.Owner, Term: route.Term, Place: places[info.ID], Replicas: c.showReplicas(info),
	}
}

func (c *Cluster) showReplicas(info *wire.Table) []api.Replica {
	v := c.View()
	out := make([]api.Replica, 0, len(info.Replicas))
	for _, r := range info.Replicas {
		_, live := v.Lease(r.Node)
		newest, _ := info.Replica(r.Node)
		live = live && newest.ID == r.ID // an older one went with its disk
		out = append(out, api.Replica{Node: r.Node, ID: strconv.FormatUint(r.ID, 16), Voter: r.Voter, Leaving: r.Leaving, Live: live})
	}
	return out
}

// lags returns how many entries each replica of a table lacks, as its owner says.
func (c *Cluster) lags(ctx context.Context, id api.TableID, owner string) (map[uint64]int64, error) {
	payload := wire.AppendUvarint(nil, uint64(id))
	var b []byte
	var err error
	switch owner {
	case "":
		return nil, errors.New("the table has no owner")
	case c.o.Node:
		b, err = c.answerLag(ctx, payload)
	default:
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		b, err = c.Ask(call, owner, wire.MethodStatus, payload)
	}
	if err != nil {
		return nil, err
	}
	r := wire.NewReader(b)
	out := map[uint64]int64{}
	for range r.Count("replicas", 2) {
		replica := r.Uvarint("replica id")
		out[replica] = int64(r.Uvarint("lag"))
	}
	return out, r.Done()
}

func (c *Cluster) answerLag(ctx context.Context, payload []byte) ([]byte, error) {
	r := wire.NewReader(payload)
	id := r.Uvarint("table id")
	if err := r.Done(); err != nil {
		return nil, err
	}
	p, err := c.o.Host.Progress(ctx, id)
	if err != nil || !p.Leads {
		return nil, &api.Error{Code: api.CodeStaleOwner, Message: "node " + c.o.Node + " does not own the table"}
	}
	b := wire.AppendUvarint(nil, uint64(len(p.Peers)+1))
	b = wire.AppendUvarint(wire.AppendUvarint(b, p.Replica), p.Commit-p.Applied)
	for _, x := range p.Peers {
		b = wire.AppendUvarint(b, x.Replica)
		b = wire.AppendUvarint(b, p.Commit-min(p.Commit, x.Match))
	}
	return b, nil
}

// Status describes the cluster as this node sees it.
func (c *Cluster) Status() api.Status {
	s := c.statusHead()
	places := c.places()
	for _, info := range c.View().Tables {
		s.Tables = append(s.Tables, c.describe(info, places))
	}
	return s
}

// statusHead is the status without its tables.
func (c *Cluster) statusHead() api.Status {
	v := c.View()
	s := api.Status{
		Cluster: c.o.Name, Node: c.o.Node, MetaLeader: c.metaLeader(), MetaTerm: c.metaNow.Load().Term,
		Members: []api.Member{}, Tables: []api.Table{}, Time: time.Now().UTC(), ClusterID: c.ID(),
	}
	for _, m := range v.Members {
		out := api.Member{Node: m.Node, Disk: m.Disk, Address: m.Address, Voter: m.Voter}
		out.DiskFull = c.room.crowded(m.Node) || m.Node == c.o.Node && c.room.own.Load()
		if l, live := v.Lease(m.Node); live {
			out.Live = true
			out.Lease = &api.Lease{
				Node: m.Node, Incarnation: l.Incarnation, Address: l.Address,
				Version: l.Version, Zone: l.Zone, Draining: l.Draining,
			}
		}
		s.Members = append(s.Members, out)
	}
	s.Waiting = c.Waiting()
	s.Refusals = append(c.refusals.list(s.Time), c.refusedBy(s.Time)...)
	return s
}

// TableID returns the id that a table's name has now; its errors are Named's.
func (c *Cluster) TableID(ctx context.Context, name string) (api.TableID, error) {
	t, err := c.Named(ctx, name)
	if err != nil {
		return 0, err
	}
	return t.ID, nil
}
