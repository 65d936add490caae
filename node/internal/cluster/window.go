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
	of           *wire.Table
	in           *lineup
	owner, place int16 // in the lineup; nobody
	state        api.TableState
	term         uint64
	frontier     float64
	lag          float64 // of the replica furthest behind
	writes       float64
	late         float64 // 99th percentile of its writes, in seconds
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
	mu    sync.Mutex
	last  *picture
	in    *lineup
	names []int32       // tables of the order of their names, by their place among ids
	ids   []api.TableID // for which names holds
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
	order := p.sightOrder(c.pictures.byName(p), f, column, down)
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
	return []string{"state", "owner", "place", "node", "term", "frontier", "lag", "writes", "p99", "replicas", "id"}
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
	newest, older := c.gathered.pair(now)
	in := c.lineup()
	p := &picture{at: now, newest: newest, tables: make([]sight, len(in.view.Tables))}
	p.window = api.Window{States: map[api.TableState]int{}, Nodes: map[string]api.Load{}}
	look := c.newLooking(in, newest, older)
	lag, writes := math.NaN(), math.NaN()
	for i := range p.tables {
		x := &p.tables[i]
		p.window.Unknown += look.table(x, i)
		if !math.IsNaN(x.lag) && !(x.lag <= lag) {
			lag = x.lag
		}
		switch {
		case math.IsNaN(x.writes):
		case math.IsNaN(writes):
			writes = x.writes
		default:
			writes += x.writes
		}
	}
	for i := range in.members {
		p.window.Nodes[in.nodes[i]] = look.now[i].load
	}
	for rank, s := range api.TableStates() {
		if n := look.states[rank]; n > 0 {
			p.window.States[s] = n
		}
	}
	p.window.MaxLag, p.window.Writes = whole(lag), known(writes)
	return p
}

// sightOrder returns the tables that match, sorted; ties are in the order of names.
func (p *picture) sightOrder(names []int32, f api.Filter, column string, down bool) []int32 { //nolint:revive // the flag is the direction
	order := make([]int32, 0, len(names))
	for _, i := range names {
		x := &p.tables[i]
		if f.Empty() || f.Match(x.of.Name, x.field) {
			order = append(order, i)
		}
	}
	if column == "name" {
		if down {
			slices.Reverse(order)
		}
		return order
	}
	by := compareBy(column, down)
	compare := func(i, j int32) int { return by(&p.tables[i], &p.tables[j]) }
	if !slices.IsSortedFunc(order, compare) { // as it is while nobody lags
		slices.SortStableFunc(order, compare)
	}
	return order
}

// byName returns the tables in the order of their names: worked out again only when
// tables have come or gone.
func (p *pictures) byName(of *picture) []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := len(p.names) == len(of.tables) && len(p.ids) == len(of.tables)
	for i := range of.tables {
		if same = same && p.ids[i] == of.tables[i].of.ID; !same {
			break
		}
	}
	if same {
		return p.names
	}
	p.names, p.ids = make([]int32, len(of.tables)), make([]api.TableID, len(of.tables))
	for i := range of.tables {
		p.names[i], p.ids[i] = int32(i), of.tables[i].of.ID
	}
	slices.SortFunc(p.names, func(i, j int32) int { return strings.Compare(of.tables[i].of.Name, of.tables[j].of.Name) })
	return p.names
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
		return text(func(x *sight) string { return x.in.name(x.owner) })
	case "place":
		return text(func(x *sight) string { return x.in.name(x.place) })
	case "term":
		return number(func(x *sight) float64 { return float64(x.term) })
	case "frontier":
		return number(func(x *sight) float64 { return x.frontier })
	case "lag":
		return number(func(x *sight) float64 { return x.lag })
	case "writes":
		return number(func(x *sight) float64 { return x.writes })
	case "p99":
		return number(func(x *sight) float64 { return x.late })
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
		return api.NoNumber(x.in.name(x.owner))
	case "place":
		return api.NoNumber(x.in.name(x.place))
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
	case "p99":
		return number(x.late)
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

func positionsOf(g *gathering) map[string]standing {
	if g == nil {
		return nil
	}
	return g.nodes
}

// showSight describes a table of a window.
func (c *Cluster) showSight(x *sight, of map[string]standing) api.Table {
	t := api.Table{
		Name: x.of.Name, ID: x.of.ID, Owner: x.in.name(x.owner), Term: x.term, Place: x.in.name(x.place), State: x.state,
		Writes: known(x.writes), P99: known(x.late), Replicas: c.showReplicas(x.of),
	}
	if n := whole(x.frontier); n != nil {
		u := uint64(*n)
		t.Frontier = &u
	}
	for i := range t.Replicas {
		r := &t.Replicas[i]
		p, ok := positionIn(of[r.Node].all, x.of.ID)
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
