package tui

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"tidal/node/api"
)

// Source is what a feed asks; *client.Client is one.
type Source interface {
	Endpoints() []string
	Window(ctx context.Context, endpoint string, q api.TableQuery) (api.Status, error)
	Brief(ctx context.Context, endpoint string) (api.LocalStatus, error)
	Events(ctx context.Context, endpoint, after string, f func(api.Event)) error
	Orders
}

// Orders are what an operator may have the cluster do.
type Orders interface {
	DrainNode(ctx context.Context, node string, o api.NodeOrder) (api.NodeReport, error)
	UndrainNode(ctx context.Context, node string, o api.NodeOrder) (api.NodeReport, error)
	HandTable(ctx context.Context, table string, o api.HandOver) (api.Table, error)
}

// Journal tells of rolls; *client.Client is one.
type Journal interface {
	Rolls(ctx context.Context) ([]api.Roll, error)
	Roll(ctx context.Context, id uint64) (api.Roll, error) // 0: the newest
}

// Times of a feed.
const (
	DefaultInterval = 500 * time.Millisecond
	askLimit        = time.Second            // for one node's answer
	hedgeAfter      = 150 * time.Millisecond // then another node is asked too
	restAfterNone   = 2 * time.Second        // most time between two tries while nobody answers
	lateNode        = 200 * time.Millisecond // a node not heard for so long is looked at again
	lookAgain       = 150 * time.Millisecond // so soon
	downInterval    = 2 * time.Second        // between two looks at a node without a lease
	crowd           = 10                     // with more nodes, each is asked less often
	sameEvent       = 5 * time.Second        // two nodes that tell the same do so within it
	rollsEvery      = 2 * time.Second        // between two looks at the journal of rolls
	eventsHeld      = 1000
	samples         = 600 // of a rate, that are kept
	seriesHeld      = 2000
	rateSpan        = 3 * time.Second // over which requests are counted
)

// feed asks the nodes and keeps what they say. Its methods may be called from any
// goroutine.
type feed struct {
	src      Source
	name     string
	interval time.Duration
	wake     chan struct{}
	changed  func() // is told of a new status
	tasks    sync.WaitGroup
	mu       struct {
		sync.Mutex
		picture Picture // Locals, Events, Writes and Tables are replaced, never changed
		nodes   map[string]*asked
		primary string // node whose stream tells of the cluster
	}
}

// asked is a node that is asked for what it says of itself.
type asked struct {
	address string
	stop    context.CancelFunc
	past    []counts
	recent  []api.Event // of the cluster, that another node's stream tells
	heard   time.Time   // its stream, by the clock of its node
	last    string      // id of the last event
}

// counts are a node's requests at one time.
type counts struct {
	at  time.Time
	inc api.Incarnation
	req api.RequestCounts
}

func newFeed(src Source, name string, interval time.Duration) *feed {
	f := &feed{src: src, name: name, interval: interval, wake: make(chan struct{}, 1), changed: func() {}}
	f.mu.nodes = map[string]*asked{}
	f.mu.picture = Picture{Cluster: name, Locals: map[string]Local{}, Tables: map[api.TableID]Series{}}
	return f
}

// snapshot returns what is known now.
func (f *feed) snapshot(now time.Time) Picture {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.mu.picture
	p.Now = now
	return p
}

// want says which tables are to be shown, and asks for them at once if that is new.
func (f *feed) want(q api.TableQuery) {
	f.mu.Lock()
	same := sameQuery(f.mu.picture.Query, q)
	f.mu.picture.Query = q
	f.mu.Unlock()
	if !same {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

func sameQuery(a, b api.TableQuery) bool {
	follow := (a.Follow == nil) == (b.Follow == nil) && (a.Follow == nil || *a.Follow == *b.Follow)
	return follow && a.Sort == b.Sort && a.Filter == b.Filter && a.Offset == b.Offset && a.Limit == b.Limit
}

// run asks until ctx ends.
func (f *feed) run(ctx context.Context) {
	f.tasks.Go(func() {
		failures := 0
		for ctx.Err() == nil {
			begun := time.Now()
			if f.ask(ctx) {
				failures = 0
			} else {
				failures++
			}
			f.followNodes(ctx)
			rest := f.interval
			if f.someoneLate() {
				rest = min(rest, lookAgain)
			}
			if failures > 0 {
				rest = min(restAfterNone, 250*time.Millisecond<<min(failures, 4))
			}
			f.pause(ctx, rest-time.Since(begun))
		}
	})
}

func (f *feed) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(max(d, 20*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.wake:
	case <-ctx.Done():
	}
}

// someoneLate reports whether a node has missed its last heartbeats, and is not called
// silent yet.
func (f *feed) someoneLate() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.picture.Status == nil {
		return false
	}
	for _, m := range f.mu.picture.Status.Members {
		if m.Live && m.Silent != nil {
			if d := time.Duration(*m.Silent) * time.Millisecond; d > lateNode && d <= silentNode {
				return true
			}
		}
	}
	return false
}

// askRolls looks at the journal of rolls again and again: at the list, and at what the
// newest has done.
func (f *feed) askRolls(ctx context.Context, j Journal) {
	for ctx.Err() == nil {
		f.lookAtRolls(ctx, j)
		f.rest(ctx, rollsEvery)
	}
}

func (f *feed) lookAtRolls(ctx context.Context, j Journal) {
	ctx, cancel := context.WithTimeout(ctx, 2*askLimit)
	defer cancel()
	list, err := j.Rolls(ctx)
	if err != nil {
		return // how old they are is shown
	}
	var newest *api.Roll
	if len(list) > 0 {
		r, err := j.Roll(ctx, list[0].ID)
		if err != nil {
			return
		}
		newest = &r
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.picture.Rolls, f.mu.picture.Roll, f.mu.picture.RollsAt = list, newest, time.Now()
}

// answer is what one node said to a question of all.
type answer struct {
	endpoint string
	status   api.Status
	err      error
}

// ask asks one node after the other for the status, the one that should know best
// first, without waiting for who is slow. It reports whether anybody answered.
func (f *feed) ask(ctx context.Context) bool {
	endpoints, q := f.endpoints()
	ctx, cancel := context.WithTimeout(ctx, askLimit+hedgeAfter*time.Duration(len(endpoints)))
	defer cancel()
	answers := make(chan answer, len(endpoints))
	begin := func(endpoint string) {
		f.tasks.Go(func() {
			call, end := context.WithTimeout(ctx, askLimit)
			defer end()
			s, err := f.src.Window(call, endpoint, q)
			answers <- answer{endpoint, s, err}
		})
	}
	hedge := time.NewTimer(0)
	defer hedge.Stop()
	last := context.DeadlineExceeded
	for started, ended := 0, 0; ended < len(endpoints); {
		select {
		case <-hedge.C:
			if started < len(endpoints) {
				begin(endpoints[started])
				started++
				hedge.Reset(hedgeAfter)
			}
		case a := <-answers:
			ended++
			if a.err == nil {
				f.take(a)
				f.changed()
				return true
			}
			last = a.err
			if started < len(endpoints) {
				hedge.Reset(0)
			}
		case <-ctx.Done():
			ended = len(endpoints)
		}
	}
	f.nobody(last)
	return false
}

// endpoints returns whom to ask: the leader of the metadata, who knows of leases what
// nobody else does, who answered last, and then all others.
func (f *feed) endpoints() ([]string, api.TableQuery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &f.mu.picture
	var leader string
	var live, others []string
	if p.Status != nil {
		for _, m := range p.Status.Members {
			switch {
			case m.Lease == nil:
				others = append(others, m.Address)
			case m.Node == p.Status.MetaLeader:
				leader = m.Lease.Address
			default:
				live = append(live, m.Lease.Address)
			}
		}
	}
	var out []string
	for _, e := range slices.Concat([]string{leader, p.From}, live, f.src.Endpoints(), others) {
		if e != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out, p.Query
}

// nobody notes that no node answered.
func (f *feed) nobody(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.picture.Tries++
	f.mu.picture.Err = err.Error()
}

// take keeps a status.
func (f *feed) take(a answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &f.mu.picture
	s := a.status
	p.Status, p.At, p.From, p.Err, p.Tries = &s, time.Now(), a.endpoint, "", 0
	if s.Window == nil {
		return
	}
	p.Writes = sample(p.Writes, s.Window.Writes)
	held := make(map[api.TableID]Series, len(p.Tables))
	if len(p.Tables) < seriesHeld {
		maps.Copy(held, p.Tables)
	}
	for i := range s.Tables {
		t := &s.Tables[i]
		was := p.Tables[t.ID]
		held[t.ID] = Series{Writes: sample(was.Writes, t.Writes), P99: sample(was.P99, t.P99)}
	}
	p.Tables = held
}

// sample returns a series with one more number; the old one stays as it is.
func sample(series []float64, v *float64) []float64 {
	n := math.NaN()
	if v != nil {
		n = *v
	}
	if len(series) >= samples {
		series = append(make([]float64, 0, samples+60), series[len(series)-samples+1:]...)
	}
	return append(series, n)
}

// followNodes asks each member for what it says of itself, side by side.
func (f *feed) followNodes(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.picture.Status == nil {
		return
	}
	members := map[string]bool{}
	for _, m := range f.mu.picture.Status.Members {
		members[m.Node] = true
		address := m.Address
		if m.Lease != nil {
			address = m.Lease.Address
		}
		x := f.mu.nodes[m.Node]
		if x != nil && x.address == address || address == "" {
			continue
		}
		if x != nil {
			x.stop()
		}
		life, stop := context.WithCancel(ctx)
		f.mu.nodes[m.Node] = &asked{address: address, stop: stop}
		f.tasks.Go(func() { f.askNode(life, m.Node, address) })
		f.tasks.Go(func() { f.followEvents(life, m.Node, address) })
	}
	for node, x := range f.mu.nodes {
		if !members[node] {
			x.stop()
			delete(f.mu.nodes, node)
		}
	}
}

// askNode asks one node again and again what it says of itself.
func (f *feed) askNode(ctx context.Context, node, address string) {
	for ctx.Err() == nil {
		begun := time.Now()
		call, end := context.WithTimeout(ctx, askLimit)
		s, err := f.src.Brief(call, address)
		end()
		if ctx.Err() != nil {
			return
		}
		if err == nil && s.Node != node {
			err = fmt.Errorf("%s answers at its address", s.Node)
		}
		rest := f.takeLocal(node, s, err)
		f.rest(ctx, rest-time.Since(begun))
	}
}

func (f *feed) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(max(d, 20*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// takeLocal keeps what a node said of itself, and returns when to ask it again.
func (f *feed) takeLocal(node string, s api.LocalStatus, err error) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.mu.nodes[node]
	if x == nil {
		return f.interval
	}
	locals := make(map[string]Local, len(f.mu.picture.Locals)+1)
	maps.Copy(locals, f.mu.picture.Locals)
	l := locals[node]
	rest := f.interval * time.Duration(1+(len(f.mu.nodes)-1)/crowd)
	if err != nil {
		l.Err = err.Error()
		rest = max(rest, downInterval)
	} else {
		now := time.Now()
		l = Local{Status: s, At: now}
		x.past = slices.DeleteFunc(x.past, func(c counts) bool { return c.inc != s.Incarnation || now.Sub(c.at) > 2*rateSpan })
		x.past = append(x.past, counts{now, s.Incarnation, s.Requests})
		l.Rate, l.Refused, l.P99 = rates(x.past)
	}
	locals[node] = l
	f.mu.picture.Locals = locals
	return rest
}

// rates returns requests and refusals a second, and the 99th percentile in seconds.
func rates(past []counts) (rate, refused, p99 float64) {
	newest := past[len(past)-1]
	oldest := past[0]
	for _, c := range past {
		if newest.at.Sub(c.at) >= rateSpan {
			oldest = c
		}
	}
	d := newest.at.Sub(oldest.at).Seconds()
	if d <= 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	came := newest.req.Since(&oldest.req)
	p99 = math.NaN()
	if came.Answered > 0 {
		p99 = float64(came.Quantile(0.99)) / 1e6
	}
	return float64(came.Answered) / d, float64(came.RefusedSum()) / d, p99
}

// followEvents follows a node's events, and begins again when they break off.
func (f *feed) followEvents(ctx context.Context, node, address string) {
	for ctx.Err() == nil {
		f.mu.Lock()
		x := f.mu.nodes[node]
		last := ""
		if x != nil {
			last = x.last
		}
		f.mu.Unlock()
		_ = f.src.Events(ctx, address, last, func(e api.Event) { f.event(node, e) }) // it is followed again
		f.lost(node)
		f.rest(ctx, f.interval*2)
	}
}

// event takes what a node tells.
func (f *feed) event(node string, e api.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.mu.nodes[node]
	if x == nil {
		return
	}
	x.last, x.heard = e.ID, e.Time
	if f.mu.primary == "" {
		f.mu.primary = node
	}
	switch {
	case e.Kind == api.EventHeartbeat:
	case e.Kind.OfNode() || node == f.mu.primary:
		f.addEvents(e)
	default:
		x.recent = append(x.recent[max(0, len(x.recent)-100):], e)
	}
}

// addEvents keeps events, in the order of their times.
func (f *feed) addEvents(list ...api.Event) {
	all := slices.Concat(f.mu.picture.Events, list)
	slices.SortStableFunc(all, func(a, b api.Event) int { return a.Time.Compare(b.Time) })
	f.mu.picture.Events = all[max(0, len(all)-eventsHeld):]
}

// lost notes that a node's stream ended. If it told of the cluster, another does from
// now on, beginning where this one ended.
func (f *feed) lost(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.primary != node {
		return
	}
	f.mu.primary = ""
	was := f.mu.nodes[node]
	best := ""
	for id, x := range f.mu.nodes {
		if id != node && !x.heard.IsZero() && (best == "" || x.heard.After(f.mu.nodes[best].heard)) {
			best = id
		}
	}
	if best == "" {
		return
	}
	f.mu.primary = best
	for _, e := range f.mu.nodes[best].recent {
		if (was == nil || e.Time.After(was.heard)) && !f.knows(&e) {
			f.addEvents(e)
		}
	}
	f.mu.nodes[best].recent = nil
}

// knows reports whether another node has told the same: they see it at different times.
func (f *feed) knows(e *api.Event) bool {
	return slices.ContainsFunc(f.mu.picture.Events, func(x api.Event) bool {
		return x.Kind == e.Kind && x.Member == e.Member && x.From == e.From && x.To == e.To && slices.Equal(x.Tables, e.Tables) &&
			e.Time.Sub(x.Time).Abs() < sameEvent
	})
}
