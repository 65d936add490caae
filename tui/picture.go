package tui

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"tidal/node/api"
)

// Times after which something is told.
const (
	oldData    = time.Second            // a status older than this is not shown as what is
	silentNode = 500 * time.Millisecond // as in the cluster: five heartbeats
	certSoon   = 7 * 24 * time.Hour
	lowSpace   = 0.10     // of a file system, and less than lowBytes
	lowBytes   = 16 << 30 // eight times what a node keeps free at most
)

// Local is what a node said of itself, and when.
type Local struct {
	Status  api.LocalStatus
	At      time.Time // zero: it never answered
	Err     string    // why it did not answer the last time; "" if it did
	Rate    float64   // requests a second that entered there; NaN: not known
	Refused float64   // a second
	P99     float64   // seconds; NaN: not known
}

// Picture is all that is known at one moment. It is not changed any more.
type Picture struct {
	Now     time.Time
	Cluster string      // as the operator calls it
	Status  *api.Status // nil: nobody ever answered
	At      time.Time   // when it came
	From    string      // endpoint
	Err     string      // why nobody answered the last time; "" if somebody did
	Tries   int         // how often nobody did since then
	Query   api.TableQuery
	Locals  map[string]Local // by node
	Events  []api.Event      // the oldest first
	Writes  []float64        // of all tables, a second, the newest last
	Tables  map[api.TableID]Series
	Rolls   []api.Roll // the newest first
	Roll    *api.Roll  // the newest one with what it has done; nil: none
	RollsAt time.Time  // when they came; zero: they never did
}

// Series is what a table's numbers were, the newest last; NaN where they were not known.
type Series struct {
	Writes []float64 // a second
	P99    []float64 // seconds that a write took
}

// age returns how old the status is.
func (p *Picture) age() time.Duration { return p.Now.Sub(p.At) }

// old reports whether the status is too old to be shown as what is.
func (p *Picture) old() bool { return p.Status == nil || p.age() > oldData }

// nodeRow is one node as the list shows it. Numbers are NaN while nobody knows.
type nodeRow struct {
	id          string
	state       string
	style       style
	symbol      string
	why         string
	lease       float64 // seconds until it ends
	owned, held float64
	meta        string
	rate, p99   float64
	refused     float64
	space       float64 // part of the disk that is free
	low         bool    // that is little
	cert        float64 // seconds until it expires
	up          float64 // seconds
	zone        string
	version     string
	incarnation string
	address     string
	member      api.Member
	local       Local
	answered    bool // local is of the incarnation that has the lease, and fresh
}

// nodes returns a row for each member, alive or not: none ever disappears because it
// does not answer.
func (p *Picture) nodes(th *theme) []nodeRow {
	if p.Status == nil {
		return nil
	}
	out := make([]nodeRow, 0, len(p.Status.Members))
	for i := range p.Status.Members {
		out = append(out, p.node(th, &p.Status.Members[i]))
	}
	return out
}

func (p *Picture) node(th *theme, m *api.Member) nodeRow {
	nan := math.NaN()
	r := nodeRow{
		id: clean(m.Node), lease: nan, owned: nan, held: nan, rate: nan, p99: nan, refused: nan, space: nan, cert: nan, up: nan,
		meta: "learner", address: clean(m.Address), member: *m, local: p.Locals[m.Node],
	}
	if m.Voter {
		r.meta = "voter"
	}
	if p.Status.MetaLeader == m.Node {
		r.meta = "leader"
	}
	if w := p.Status.Window; w != nil {
		r.owned, r.held = float64(w.Nodes[m.Node].Owned), float64(w.Nodes[m.Node].Held)
	}
	if l := m.Lease; l != nil {
		r.zone, r.version, r.incarnation, r.address = clean(l.Zone), clean(l.Version), clean(l.Incarnation.String()), clean(l.Address)
		if l.EndsIn != nil && !p.old() {
			r.lease = max(0, (time.Duration(*l.EndsIn)*time.Millisecond - p.age()).Seconds())
		}
	}
	r.answered = !r.local.At.IsZero() && p.Now.Sub(r.local.At) < 2*oldData &&
		(m.Lease == nil || r.local.Status.Incarnation == m.Lease.Incarnation)
	if r.answered {
		r.fromLocal(p.Now)
	}
	r.judge(p, th, m)
	return r
}

// fromLocal takes over what the node says of itself.
func (r *nodeRow) fromLocal(now time.Time) {
	s := &r.local.Status
	r.rate, r.p99, r.refused = r.local.Rate, r.local.P99, r.local.Refused
	if s.Space != nil && s.Space.Total > 0 {
		r.space = float64(s.Space.Available) / float64(s.Space.Total)
		r.low = r.space < lowSpace && s.Space.Available < lowBytes
	}
	if s.Certificate != nil {
		r.cert = s.Certificate.Sub(now).Seconds()
	}
	r.up = now.Sub(s.Started).Seconds()
}

// judge says how the node is, in one word and why.
func (r *nodeRow) judge(p *Picture, th *theme, m *api.Member) {
	set := func(st style, symbol, state, why string) {
		r.style, r.symbol, r.state, r.why = st, symbol, state, why
	}
	silent := time.Duration(0)
	if m.Silent != nil {
		silent = time.Duration(*m.Silent) * time.Millisecond
	}
	switch {
	case p.old():
		set(unsure, "?", "stale", "this is "+span(p.age())+" old")
	case !m.Live && r.answered:
		set(joining, "+", "joining", firstReason(r.local.Status.Reasons, "it answers, and has no lease yet"))
	case !m.Live:
		set(bad, th.glyph("✗", "x"), "down", "it has no lease")
	case silent > silentNode:
		set(unsure, "?", "stale", fmt.Sprintf("node %s has not heard it for %s", clean(p.Status.Node), span(silent+p.age())))
	case m.Lease != nil && m.Lease.Draining:
		set(draining, "-", "draining", claimedBy(r))
	case r.answered && !r.local.Status.Ready:
		set(joining, "+", "joining", firstReason(r.local.Status.Reasons, "it is not ready"))
	default:
		set(good, th.glyph("●", "*"), "serving", "")
	}
}

func claimedBy(r *nodeRow) string {
	if c := r.local.Status.Claim; r.answered && c != nil {
		return "claimed by " + clean(c.By) + ", ends in " + clean(c.EndsIn)
	}
	return "it hands over what it owns"
}

func firstReason(reasons []api.Reason, otherwise string) string {
	if len(reasons) == 0 {
		return otherwise
	}
	x := reasons[0]
	text := clean(x.Detail)
	if x.Table != "" {
		text = "table " + clean(x.Table) + ": " + text
	}
	return text
}

// problem is something that is not well.
type problem struct {
	bad  bool // else it is worth a look
	text string
}

// problems says what is not well, the worst first.
func (p *Picture) problems(th *theme) []problem {
	var out []problem
	add := func(worst bool, format string, args ...any) {
		out = append(out, problem{worst, fmt.Sprintf(format, args...)})
	}
	if p.Status == nil && p.Tries == 0 {
		return nil
	}
	if p.Status == nil {
		add(true, "no answer from any node yet (%d tries): %s", p.Tries, clean(p.Err))
		return out
	}
	if p.old() {
		add(true, "no answer from any node for %s (%d tries): %s", span(p.age()), p.Tries, clean(p.Err))
	}
	if p.Status.MetaLeader == "" {
		add(true, "the metadata has no leader: no lease is granted, no table is made")
	}
	for _, r := range p.nodes(th) { // a node that is away is the cause of the rest
		nodeProblems(&r, add)
	}
	p.tableProblems(add)
	p.rollProblem(add)
	slices.SortStableFunc(out, func(a, b problem) int {
		switch {
		case a.bad == b.bad:
			return 0
		case a.bad:
			return -1
		}
		return 1
	})
	return out
}

func (p *Picture) rollProblem(add func(bool, string, ...any)) {
	switch r := p.Roll; {
	case !mayBeTaken(r):
	case r.Status == api.RollPaused:
		add(false, "roll %d is paused: %s; tidal roll resume", r.ID, clean(r.Why))
	default:
		add(false, "roll %d stands still: %s; tidal roll resume", r.ID, aloneText(r))
	}
}

func (p *Picture) tableProblems(add func(bool, string, ...any)) {
	w := p.Status.Window
	if w == nil {
		return
	}
	for _, s := range []struct {
		state api.TableState
		bad   bool
		what  string
	}{
		{api.TableNoQuorum, true, "too few of their replicas live"},
		{api.TableNoOwner, true, "nobody owns them now"},
		{api.TableUnsure, true, "their owner is silent"},
		{api.TableDegraded, false, "a replica of each is not live"},
	} {
		if n := w.States[s.state]; n > 0 {
			add(s.bad, "%s %s: %s", counted(n, "table"), s.state, s.what)
		}
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func nodeProblems(r *nodeRow, add func(bool, string, ...any)) {
	switch r.state {
	case "down", "stale":
		if !strings.HasPrefix(r.why, "this is") { // that is said once, of all
			add(r.state == "down", "node %s %s: %s", r.id, r.state, r.why)
		}
	case "joining":
		add(false, "node %s is not ready: %s", r.id, r.why)
	case "draining":
		add(false, "node %s drains: %s", r.id, r.why)
	}
	if r.refused > 0 {
		add(true, "node %s refuses %s requests/s", r.id, amount(r.refused))
	}
	if left := time.Duration(r.cert * float64(time.Second)); !math.IsNaN(r.cert) && left < certSoon {
		if left <= 0 {
			add(true, "the certificate of node %s has expired", r.id)
		} else {
			add(false, "the certificate of node %s expires in %s", r.id, span(left))
		}
	}
	if r.low {
		add(r.space < lowSpace/2, "the disk of node %s has %.0f %% free", r.id, 100*r.space)
	}
}

// degraded reports whether somebody who asked for the state of the cluster should be
// told that it is not well. A planned drain is.
func degraded(list []problem) bool {
	return slices.ContainsFunc(list, func(p problem) bool { return p.bad || !strings.Contains(p.text, " drains: ") })
}

// nodeField is what filters and orders look at.
func (r *nodeRow) field(name string) api.Field {
	n := r.number(name)
	switch name {
	case "state":
		return api.NoNumber(r.state)
	case "meta":
		return api.NoNumber(r.meta)
	case "zone":
		return api.NoNumber(r.zone)
	case "version":
		return api.NoNumber(r.version)
	case "incarnation":
		return api.NoNumber(r.incarnation)
	case "address":
		return api.NoNumber(r.address)
	}
	return api.Field{Text: amount(n), Number: n}
}

func (r *nodeRow) number(name string) float64 {
	switch name {
	case "lease":
		return r.lease
	case "owned":
		return r.owned
	case "held":
		return r.held
	case "requests":
		return r.rate
	case "p99":
		return r.p99
	case "disk":
		return r.space
	case "cert":
		return r.cert
	case "up":
		return r.up
	}
	return math.NaN()
}

func nodeColumnsSorted() []string {
	return []string{
		"name", "state", "lease", "owned", "held", "meta", "requests", "p99", "disk", "cert", "up", "zone", "version", "incarnation", "address",
	}
}

// sortNodes filters and sorts. What is not known comes last; ties are in the order of
// names. It reports why a filter or an order is none.
func sortNodes(rows []nodeRow, by, filter string) ([]nodeRow, error) {
	names := nodeColumnsSorted()
	col, down, err := api.ParseSort(by, names)
	if err != nil {
		return rows, err
	}
	f, err := api.ParseFilter(filter, names[1:])
	if err != nil {
		return rows, err
	}
	rows = slices.DeleteFunc(rows, func(r nodeRow) bool { return !f.Match(r.id, r.field) })
	slices.SortStableFunc(rows, func(a, b nodeRow) int {
		x, y := a.field(col), b.field(col)
		var c int
		switch {
		case col == "name":
			c = strings.Compare(a.id, b.id)
		case math.IsNaN(a.number(col)) && math.IsNaN(b.number(col)):
			c = strings.Compare(x.Text, y.Text)
		default:
			return orName(api.CompareNumbers(x.Number, y.Number, down), a.id, b.id)
		}
		if down {
			c = -c
		}
		return orName(c, a.id, b.id)
	})
	return rows, nil
}

func orName(c int, a, b string) int {
	if c != 0 {
		return c
	}
	return strings.Compare(a, b)
}
