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
	mu    sync.Mutex
	last  *picture
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
	places := c.places()
	look := newLooking(c, newest, older)
	lag, writes := math.NaN(), math.NaN()
	c.directory.read(c.o.Node, v.Tables, func(i int, o owning) {
		x := &p.tables[i]
		x.of, x.place = v.Tables[i], places[v.Tables[i].ID]
		look.owner(x, o)
	})
	for i := range p.tables {
		x := &p.tables[i]
		p.window.Unknown += look.lag(x)
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
	for _, n := range look.nodes {
		p.window.Nodes[n.id] = n.load
	}
	for rank, s := range api.TableStates() {
		if n := look.states[rank]; n > 0 {
			p.window.States[s] = n
		}
	}
	p.window.MaxLag, p.window.Writes = whole(lag), known(writes)
	return p
}

// looking is what one goes through the tables with, in the order of their ids.
type looking struct {
	nodes   []*seen
	last    map[string]*seen // by node
	states  [8]int           // tables, by the rank of their state
	is, was heights
	took    float64 // seconds between the two gatherings
	fresh   bool    // there is a gathering
}

// seen is a node while one goes through the tables.
type seen struct {
	id        string
	leased    bool
	heard     bool
	gathered  bool
	positions cursor
	load      api.Load
}

func newLooking(c *Cluster, newest, older *gathering) *looking {
	l := &looking{last: map[string]*seen{}, fresh: newest != nil}
	v := c.View()
	for _, m := range v.Members {
		n := &seen{id: m.Node}
		if _, n.leased = v.Lease(m.Node); n.leased {
			n.heard = m.Node == c.o.Node || c.silence(m.Node) <= heardNow
		}
		if newest != nil {
			n.positions.rest, n.gathered = newest.nodes[m.Node]
		}
		l.nodes, l.last[m.Node] = append(l.nodes, n), n
	}
	if newest != nil {
		l.is.rest = newest.highest
	}
	if older != nil {
		l.was.rest, l.took = older.highest, newest.at.Sub(older.at).Seconds()
	}
	return l
}

// node returns a node; of one that is no member any more, nothing is known.
func (l *looking) node(id string) *seen {
	if n := l.last[id]; n != nil {
		return n
	}
	return &seen{id: id}
}

// owner fills in a table's owner and state. An owner without a lease is none: what it
// said of itself is old.
func (l *looking) owner(x *sight, o owning) {
	by := l.node(o.node)
	if by.leased {
		x.owner, x.term = o.node, o.term
		by.load.Owned++
	}
	voters, live, moving := 0, 0, false
	for i := range x.of.Replicas {
		r := &x.of.Replicas[i]
		n := l.node(r.Node)
		n.load.Held++
		lives := n.leased
		if newest, _ := x.of.Replica(r.Node); newest.ID != r.ID {
			lives = false // an older one went with its disk
		}
		moving = moving || r.Leaving || !r.Voter
		if r.Voter {
			voters++
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
	l.states[x.state.Rank()]++
}

// lag fills in how far a table and its replicas are, and returns how many of them say
// nothing.
func (l *looking) lag(x *sight) (silent int) {
	x.frontier, x.lag, x.writes = math.NaN(), math.NaN(), math.NaN()
	if !l.fresh {
		return len(x.of.Replicas)
	}
	now, ok := l.is.at(x.of.ID)
	if ok {
		x.frontier = float64(now)
	}
	for i := range x.of.Replicas {
		p, here := l.node(x.of.Replicas[i].Node).positions.at(x.of.ID)
		if !here {
			silent++
			continue
		}
		if behind := float64(now - min(now, p.applied)); math.IsNaN(x.lag) || behind > x.lag {
			x.lag = behind
		}
	}
	if before, had := l.was.at(x.of.ID); ok && had && l.took > 0 {
		x.writes = float64(now-min(now, before)) / l.took
	}
	return silent
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
