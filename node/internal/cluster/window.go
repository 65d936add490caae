package cluster

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

const (
	pictureFresh = 100 * time.Millisecond // within it all who look see the same picture
	firstLook    = gatherCall + 100*time.Millisecond
)

// sight is one table as a window shows it. Its numbers are NaN while nobody knows.
type sight struct {
	of       *wire.Table
	owner    string
	place    string
	term     uint64
	state    api.TableState
	live     int // replicas that are
	frontier float64
	lag      float64 // of the replica furthest behind
	writes   float64
}

// picture is all tables at one moment, in the order of their ids.
type picture struct {
	at     time.Time
	tables []sight
	newest *gathering
	window api.Window // what does not depend on the query
}

// pictures keep the newest one.
type pictures struct {
	mu   sync.Mutex
	last *picture
}

// Window describes the cluster, with a part of its tables and how far their
// replicas are. Its errors are *api.Error.
func (c *Cluster) Window(ctx context.Context, q api.TableQuery) (api.Status, error) {
	column, down, err := q.SortKey()
	if err != nil {
		return api.Status{}, err
	}
	f, err := api.ParseFilter(q.Filter, tableFields())
	if err != nil {
		return api.Status{}, err
	}
	change := c.gathered.changed.wait()
	c.gathered.want()
	if newest, _ := c.gathered.pair(time.Now()); newest == nil && c.Formed() {
		c.sleep(ctx, firstLook, change)
	}
	p := c.picture(time.Now())
	s := c.statusHead()
	c.addHearing(&s)
	w := p.window
	w.Total = len(p.tables)
	order := sightOrder(p.tables, f, column, down)
	w.Matched, w.Offset = len(order), windowAt(order, p.tables, &q)
	shown := order[w.Offset:min(len(order), w.Offset+q.Limit)]
	of := positionsOf(p.newest)
	s.Tables = make([]api.Table, 0, len(shown))
	for _, i := range shown {
		s.Tables = append(s.Tables, c.showSight(&p.tables[i], of))
	}
	s.Window = &w
	return s, nil
}

// windowAt returns where the window begins: where the query says, moved as little
// as needed to have the table that it follows.
func windowAt(order []int32, tables []sight, q *api.TableQuery) int {
	at := max(0, min(q.Offset, len(order)-q.Limit))
	if q.Follow == nil {
		return at
	}
	for i, n := range order {
		if tables[n].of.ID == *q.Follow {
			return max(0, min(max(at, i-q.Limit+1), i))
		}
	}
	return at
}

// tableFields are what a filter of tables can name beside the name.
func tableFields() []string {
	return []string{"state", "owner", "place", "node", "term", "frontier", "lag", "writes", "replicas", "id"}
}

// picture returns all tables as they are now, or were a moment ago.
func (c *Cluster) picture(now time.Time) *picture {
	c.pictures.mu.Lock()
	defer c.pictures.mu.Unlock()
	if p := c.pictures.last; p != nil && now.Sub(p.at) < pictureFresh {
		return p
	}
	p := c.takePicture(now)
	c.pictures.last = p
	return p
}

func (c *Cluster) takePicture(now time.Time) *picture {
	v := c.View()
	newest, older := c.gathered.pair(now)
	p := &picture{at: now, newest: newest, tables: make([]sight, len(v.Tables))}
	p.window = api.Window{States: map[api.TableState]int{}, Nodes: map[string]api.Load{}}
	owners, places, alive := c.directory.owners(c.o.Node), c.places(), c.alive()
	is, was := cursors(newest), cursors(older)
	all := 0.0
	lag, writes := math.NaN(), math.NaN()
	for i, t := range v.Tables {
		x := &p.tables[i]
		x.of, x.place = t, places[t.ID]
		c.sightOwner(x, owners[t.ID], alive)
		p.window.Unknown += sightLag(x, is, was, newest, older)
		p.window.States[x.state]++
		countLoad(p.window.Nodes, x)
		if !math.IsNaN(x.lag) && (math.IsNaN(lag) || x.lag > lag) {
			lag = x.lag
		}
		if !math.IsNaN(x.writes) {
			all += x.writes
			writes = all
		}
	}
	p.window.MaxLag, p.window.Writes = whole(lag), known(writes)
	return p
}

func countLoad(nodes map[string]api.Load, x *sight) {
	for _, r := range x.of.Replicas {
		l := nodes[r.Node]
		l.Held++
		nodes[r.Node] = l
	}
	if x.owner != "" {
		l := nodes[x.owner]
		l.Owned++
		nodes[x.owner] = l
	}
}

// hearing is whether a node has a lease, and whether it is heard now.
type hearing struct{ heard bool }

// alive returns the nodes that have a lease.
func (c *Cluster) alive() map[string]hearing {
	out := map[string]hearing{}
	for _, l := range c.View().Leases {
		node := l.Incarnation.Node
		out[node] = hearing{heard: node == c.o.Node || c.silence(node) <= heardNow}
	}
	return out
}

// sightOwner fills in a table's owner and state. An owner without a lease is none:
// what it said of itself is old.
func (c *Cluster) sightOwner(x *sight, o owning, alive map[string]hearing) {
	by, leased := alive[o.node]
	if leased {
		x.owner, x.term = o.node, o.term
	}
	voters, live, moving := 0, 0, false
	for _, r := range x.of.Replicas {
		newest, _ := x.of.Replica(r.Node)
		_, lives := alive[r.Node]
		lives = lives && newest.ID == r.ID // an older one went with its disk
		moving = moving || r.Leaving || !r.Voter
		if r.Voter {
			voters++
		}
		if lives {
			x.live++
		}
		if r.Voter && lives {
			live++
		}
	}
	switch {
	case live <= voters/2:
		x.state = api.TableNoQuorum
	case x.owner == "":
		x.state = api.TableNoOwner
	case !by.heard:
		x.state = api.TableUnsure
	case live < voters:
		x.state = api.TableDegraded
	case moving || x.owner != x.place:
		x.state = api.TableMoving
	default:
		x.state = api.TableServing
	}
}

// sightLag fills in how far a table and its replicas are, and returns how many of
// them say nothing.
func sightLag(x *sight, is, was map[string]*cursor, newest, older *gathering) (silent int) {
	x.frontier, x.lag, x.writes = math.NaN(), math.NaN(), math.NaN()
	if newest == nil {
		return len(x.of.Replicas)
	}
	before, had := frontier(was, x.of)
	now, ok := frontier(is, x.of)
	if ok {
		x.frontier = float64(now)
	}
	for _, r := range x.of.Replicas {
		c := is[r.Node]
		if c == nil {
			silent++
			continue
		}
		p, here := c.at(x.of.ID)
		if !here {
			silent++
			continue
		}
		if behind := float64(now - min(now, p.applied)); math.IsNaN(x.lag) || behind > x.lag {
			x.lag = behind
		}
	}
	if ok && had && older != nil {
		x.writes = float64(now-min(now, before)) / newest.at.Sub(older.at).Seconds()
	}
	return silent
}

// sightOrder returns the tables that match, sorted; ties are in the order of names.
func sightOrder(tables []sight, f api.Filter, column string, down bool) []int32 {
	order := make([]int32, 0, len(tables))
	for i := range tables {
		x := &tables[i]
		if f.Empty() || f.Match(x.of.Name, x.field) {
			order = append(order, int32(i))
		}
	}
	by := compareBy(column, down)
	slices.SortFunc(order, func(i, j int32) int {
		a, b := &tables[i], &tables[j]
		return cmp.Or(by(a, b), strings.Compare(a.of.Name, b.of.Name))
	})
	return order
}

// compareBy returns the order of a column. What is not known comes last.
func compareBy(column string, down bool) func(a, b *sight) int { //nolint:revive // the flag is the direction
	text := func(of func(*sight) string) func(a, b *sight) int {
		return func(a, b *sight) int {
			x, y := of(a), of(b)
			if x == "" || y == "" || !down {
				return cmp.Or(cmp.Compare(cmp.Compare(len(y), 0), cmp.Compare(len(x), 0)), strings.Compare(x, y))
			}
			return strings.Compare(y, x)
		}
	}
	number := func(of func(*sight) float64) func(a, b *sight) int {
		return func(a, b *sight) int { return api.CompareNumbers(of(a), of(b), down) }
	}
	switch column {
	case "state":
		return number(func(x *sight) float64 { return float64(x.state.Rank()) })
	case "owner":
		return text(func(x *sight) string { return x.owner })
	case "place":
		return text(func(x *sight) string { return x.place })
	case "term":
		return number(func(x *sight) float64 { return float64(x.term) })
	case "frontier":
		return number(func(x *sight) float64 { return x.frontier })
	case "lag":
		return number(func(x *sight) float64 { return x.lag })
	case "writes":
		return number(func(x *sight) float64 { return x.writes })
	case "replicas":
		return number(func(x *sight) float64 { return float64(len(x.of.Replicas)) })
	case "id":
		return number(func(x *sight) float64 { return float64(x.of.ID) })
	}
	return text(func(x *sight) string { return x.of.Name })
}

// field returns what a filter looks at.
func (x *sight) field(name string) api.Field {
	number := func(n float64) api.Field {
		if math.IsNaN(n) {
			return api.Field{Text: "-", Number: n}
		}
		return api.Field{Text: strconv.FormatFloat(n, 'f', -1, 64), Number: n}
	}
	switch name {
	case "state":
		return api.NoNumber(string(x.state))
	case "owner":
		return api.NoNumber(x.owner)
	case "place":
		return api.NoNumber(x.place)
	case "node":
		return api.Field{Any: x.holders(), Number: math.NaN()}
	case "term":
		return number(float64(x.term))
	case "frontier":
		return number(x.frontier)
	case "lag":
		return number(x.lag)
	case "writes":
		return number(x.writes)
	case "replicas":
		return number(float64(len(x.of.Replicas)))
	}
	return api.NoNumber(x.of.ID.String())
}

func (x *sight) holders() []string {
	out := make([]string, 0, len(x.of.Replicas))
	for _, r := range x.of.Replicas {
		out = append(out, r.Node)
	}
	return out
}

func positionsOf(g *gathering) map[string][]position {
	if g == nil {
		return nil
	}
	return g.nodes
}

// showSight describes a table of a window.
func (c *Cluster) showSight(x *sight, of map[string][]position) api.Table {
	t := api.Table{
		Name: x.of.Name, ID: x.of.ID, Owner: x.owner, Term: x.term, Place: x.place, State: x.state,
		Writes: known(x.writes), Replicas: c.showReplicas(x.of),
	}
	if n := whole(x.frontier); n != nil {
		u := uint64(*n)
		t.Frontier = &u
	}
	for i := range t.Replicas {
		r := &t.Replicas[i]
		p, ok := positionIn(of[r.Node], x.of.ID)
		if ok && t.Frontier != nil && r.Live {
			lag := int64(*t.Frontier - min(*t.Frontier, p.applied))
			r.Lag = &lag
		}
	}
	return t
}

func positionIn(list []position, id api.TableID) (position, bool) {
	i, ok := slices.BinarySearchFunc(list, id, func(p position, id api.TableID) int { return cmp.Compare(p.table, id) })
	if !ok {
		return position{}, false
	}
	return list[i], true
}

// addHearing fills in what only this node knows of the others.
func (c *Cluster) addHearing(s *api.Status) {
	now := time.Now()
	for i := range s.Members {
		m := &s.Members[i]
		if _, at := c.o.Net.Heard(m.Node); m.Node != c.o.Node && !at.IsZero() {
			ms := now.Sub(at).Milliseconds()
			m.Silent = &ms
		}
		if m.Lease == nil || !c.leadsMeta() {
			continue
		}
		if left, ok := c.leases.left(m.Lease.Incarnation, now); ok {
			ms := left.Milliseconds()
			m.Lease.EndsIn = &ms
		}
	}
}

// whole returns a number of entries, nil for NaN.
func whole(n float64) *int64 {
	if math.IsNaN(n) {
		return nil
	}
	i := int64(n)
	return &i
}

// known returns a number, nil for NaN.
func known(n float64) *float64 {
	if math.IsNaN(n) {
		return nil
	}
	return &n
}
