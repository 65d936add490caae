package tui

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"tidal/node/api"
)

// at is the time of all tests.
var at = time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)

// fixed is a world that stands still, and keeps what it is asked for.
type fixed struct {
	p     Picture
	query api.TableQuery
}

func (f *fixed) snapshot(now time.Time) Picture {
	p := f.p
	p.Now, p.Query = now, f.query
	return p
}

func (f *fixed) want(q api.TableQuery) {
	f.query = q
	f.page()
}

// page shows the window that was asked for, as a node does.
func (f *fixed) page() {
	if f.p.Status == nil || f.p.Status.Window == nil {
		return
	}
	all := tablesOfWorld(f.p.Status.Window.Total)
	w := *f.p.Status.Window
	w.Matched, w.Offset = len(all), max(0, min(f.query.Offset, len(all)-f.query.Limit))
	if f.query.Follow != nil {
		for i, t := range all {
			if t.ID == *f.query.Follow {
				w.Offset = max(0, min(max(w.Offset, i-f.query.Limit+1), i))
			}
		}
	}
	s := *f.p.Status
	s.Tables = all[w.Offset:min(len(all), w.Offset+f.query.Limit)]
	s.Window = &w
	f.p.Status = &s
}

func incarnation(node string, start uint64) api.Incarnation {
	return api.Incarnation{Node: node, Start: start, Suffix: 0x3f2a9c1b}
}

// names are what users call tables, and worse.
func names() []string {
	return []string{
		"orders", "sessions", "users", "注文テーブル", "👩‍👩‍👧‍👦-family", "e\u0301tat", "evil\x1b[2J\x1b]52;c;aGk=\x07", "line\nbreak", "rtl\u202etxt",
		strings.Repeat("n", 64), "कषि", "audit",
	}
}

func tablesOfWorld(n int) []api.Table {
	var all []api.Table
	for i := range n {
		name := fmt.Sprintf("table-%05d", i)
		if i < len(names()) {
			name = names()[i]
		}
		owner := string(rune('a' + i%3))
		t := api.Table{
			Name: name, ID: api.TableID(0xfedcba9876543210 + uint64(i)), Owner: owner, Place: owner, Term: uint64(4 + i), State: api.TableServing,
			Frontier: new(uint64(1)<<60 + uint64(i)), Writes: new(float64(i) * 37.5),
		}
		for _, node := range []string{"a", "b", "c"} {
			r := api.Replica{Node: node, ID: "7", Voter: true, Live: true, Lag: new(int64(0))}
			if node == "c" {
				r.Live, r.Lag = false, nil
			}
			t.Replicas = append(t.Replicas, r)
		}
		switch {
		case owner == "c":
			t.Owner, t.State = "", api.TableNoOwner
		case i == 1:
			t.Place, t.State = "a", api.TableMoving
		default:
			t.State = api.TableDegraded
		}
		if i%5 != 4 && t.Owner != "" {
			t.P99 = new(0.0009 * float64(1+i))
		}
		if i == 3 {
			t.Replicas[0].Lag = new(int64(120400))
		}
		all = append(all, t)
	}
	return all
}

// newWorld is a cluster of five in which a lot is wrong, with so many tables.
func newWorld(tables int) *fixed {
	f := &fixed{}
	ms := func(n int64) *int64 { return new(n) }
	member := func(node string, silent *int64, l *api.Lease) api.Member {
		m := api.Member{Node: node, Disk: api.DiskID{node[0]}, Address: "https://10.0.0." + node + ":8433", Voter: node < "d", Live: l != nil, Lease: l, Silent: silent}
		if l != nil {
			l.Node, l.Incarnation, l.Address, l.Version, l.Zone = node, incarnation(node, 17), m.Address, "v1.4.0", "z"+node
		}
		return m
	}
	f.p = Picture{
		Cluster: "prod", At: at, From: "https://10.0.0.a:8433", Locals: map[string]Local{}, Tables: map[api.TableID]Series{},
		Status: &api.Status{
			Cluster: "prod", Node: "a", MetaLeader: "a", MetaTerm: 7, Time: at,
			Members: []api.Member{
				member("a", nil, &api.Lease{EndsIn: ms(3400)}),
				member("b", ms(40), &api.Lease{EndsIn: ms(2600), Draining: true}),
				member("c", ms(92000), nil),
				member("d", ms(1800), &api.Lease{EndsIn: ms(900)}),
				member("e", ms(60), &api.Lease{EndsIn: ms(3100)}),
			},
			Window: &api.Window{
				Total: tables, Matched: tables, MaxLag: ms(120400), Writes: new(1234.5), Unknown: tables,
				States: map[api.TableState]int{api.TableNoOwner: tables / 3, api.TableDegraded: tables - tables/3},
				Nodes:  map[string]api.Load{"a": {Owned: 14, Held: 40}, "b": {Owned: 2, Held: 40}, "c": {Held: 40}, "e": {}},
			},
		},
	}
	for _, node := range []string{"a", "b", "e"} {
		l := api.LocalStatus{
			Node: node, Incarnation: incarnation(node, 17), Version: "v1.4.0", Phase: "serving", Ready: true, Started: at.Add(-50 * time.Hour),
			Space: &api.Space{Available: 42e9, Total: 100e9}, Certificate: new(at.Add(90 * 24 * time.Hour)),
			Requests: api.RequestCounts{Answered: 123456, LongestMicros: 210_000},
		}
		switch node {
		case "b":
			l.Claim = &api.Claim{By: "ann@laptop[99]", Epoch: 4, EndsIn: "29.5s"}
		case "e":
			l.Ready, l.Space.Available, l.Certificate = false, 4e9, new(at.Add(50*time.Hour))
			l.Reasons = []api.Reason{{Code: "table-behind", Table: "orders", Detail: "has applied 7 of 1211 entries, and receives a snapshot, of which 37 % are here"}}
		}
		f.p.Locals[node] = Local{Status: l, At: at.Add(-200 * time.Millisecond), Rate: 417.3, Refused: 0, P99: 0.0042}
	}
	for i := range 90 {
		f.p.Writes = append(f.p.Writes, 600+600*math.Sin(float64(i)/7))
	}
	late := make([]float64, 0, 90)
	for i := range 90 {
		late = append(late, 0.002+0.0015*math.Sin(float64(i)/5))
	}
	f.p.Tables[0xfedcba9876543210] = Series{Writes: append(f.p.Writes[:40:40], math.NaN(), math.Inf(1), 1e300, 3), P99: append(late, math.NaN())}
	inc := incarnation("c", 17)
	for i, e := range []api.Event{
		{Kind: api.EventLease, Member: "c", Incarnation: &inc},
		{Kind: api.EventTableCreated, Tables: []string{"orders"}, Count: 1},
		{Kind: api.EventSnapshot, Node: "e", Member: "e", Count: 2, Why: "taken"},
		{Kind: api.EventOwner, Tables: []string{"orders", "evil\x1b[2J"}, Count: 3333, From: "c", To: "a", Why: "c is silent"},
		{Kind: api.EventLeaseEnded, Member: "c", Incarnation: &inc, Why: "not renewed"},
		{Kind: api.EventMetaLeader, From: "c", To: "a", Term: 7},
		{Kind: api.EventRefused, Member: "b", Node: "b", Count: 12, Why: "no-owner", Tables: []string{"orders"}},
	} {
		e.ID, e.Time = api.EventID(incarnation("a", 17), uint64(i+1)), at.Add(time.Duration(i-90)*time.Second)
		if e.Node == "" {
			e.Node = "a"
		}
		f.p.Events = append(f.p.Events, e)
	}
	f.p.RollsAt = at
	f.p.Rolls = []api.Roll{
		{ID: 7, Epoch: 12, Status: api.RollPaused, By: "ann@laptop[99]", Why: "node c does not come back", Began: at.Add(-5 * time.Minute), Changed: at.Add(-time.Minute)},
		{ID: 6, Status: api.RollDone, By: "ci\x1b[2J", Began: at.Add(-72 * time.Hour), Changed: at.Add(-72*time.Hour + 95*time.Second)},
		{ID: 5, Status: api.RollAborted, By: "ann", Why: "asked to", Began: at.Add(-90 * time.Hour), Changed: at.Add(-89 * time.Hour)},
	}
	newest := f.p.Rolls[0]
	for _, n := range []api.RollNode{{Node: "a", State: "done"}, {Node: "c", State: "stop", Note: "it has no lease"}, {Node: "e", State: "check"}} {
		n.Steps = []api.RollStep{{State: n.State, At: at.Add(-2 * time.Minute)}}
		newest.Nodes = append(newest.Nodes, n)
	}
	f.p.Roll = &newest
	return f
}

// wellWorld is a cluster of three in which all is well.
func wellWorld() *fixed {
	f := newWorld(6)
	s := *f.p.Status
	s.Members = append([]api.Member{}, s.Members[:3]...)
	for i := range s.Members {
		m := &s.Members[i]
		l := &api.Lease{Node: m.Node, Incarnation: incarnation(m.Node, 17), Address: m.Address, Version: "v1.4.0", EndsIn: new(int64(3000 + 100*i))}
		m.Live, m.Lease, m.Silent = true, l, new(int64(30))
		local := f.p.Locals["a"]
		local.Status.Node, local.Status.Incarnation = m.Node, l.Incarnation
		f.p.Locals[m.Node] = local
	}
	s.Window = &api.Window{
		Total: 6, Matched: 6, MaxLag: new(int64(0)), Writes: new(1234.5), States: map[api.TableState]int{api.TableServing: 6},
		Nodes: map[string]api.Load{"a": {Owned: 2, Held: 6}, "b": {Owned: 2, Held: 6}, "c": {Owned: 2, Held: 6}},
	}
	f.p.Status = &s
	f.p.Rolls, f.p.Roll = nil, nil
	return f
}

// screenOf returns a model of a world, as it is at a size.
func screenOf(t *testing.T, w world, theme string, ascii bool, width, height int) *model {
	t.Helper()
	th, err := newTheme(theme, ascii)
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(Options{Cluster: "prod", By: "test", Interval: DefaultInterval, ctx: t.Context()}, th, w)
	m.now = func() time.Time { return at }
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.settled()
	return m
}

// settled lets the screen catch up with what it asked for.
func (m *model) settled() {
	for range 3 {
		m.Update(tickMsg{})
	}
}

// press presses keys: names of keys in angle brackets, and characters.
func (m *model) press(keys ...string) tea.Cmd {
	var last tea.Cmd
	special := map[string]tea.KeyType{
		"enter": tea.KeyEnter, "esc": tea.KeyEsc, "up": tea.KeyUp, "down": tea.KeyDown, "backspace": tea.KeyBackspace, "tab": tea.KeyTab,
		"ctrl+c": tea.KeyCtrlC, "pgdown": tea.KeyPgDown, "end": tea.KeyEnd, "home": tea.KeyHome,
	}
	for _, k := range keys {
		msg := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)}
		if kind, ok := special[k]; ok {
			msg = tea.KeyMsg{Type: kind}
		}
		_, last = m.Update(msg)
		m.settled()
	}
	return last
}
