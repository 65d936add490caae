package tui

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"tidal/node/api"
)

// Times of the screen.
const (
	frameEvery = 250 * time.Millisecond // between two looks at what is known
	actLimit   = 10 * time.Second       // for an action
	noticeFor  = 6 * time.Second        // that a notice stays
	drainTTL   = 10 * time.Minute       // of a claim that is made here
)

// view is what the screen shows.
type view uint8

const (
	viewNodes view = iota
	viewTables
	viewEvents
	viewRolls
	viewNode  // one node
	viewTable // one table
)

// world is what a model knows and can do; a feed is one.
type world interface {
	snapshot(now time.Time) Picture
	want(q api.TableQuery)
}

// model is the state of the screen. Only bubbletea's loop touches it.
type model struct {
	o     Options
	th    theme
	world world
	now   func() time.Time
	copy  func(string) error

	p      Picture
	paused bool
	w, h   int
	view   view
	back   []view // where Escape leads
	nodes  list
	tables list
	events list
	rolls  list
	node   string      // of viewNode
	table  api.TableID // of viewTable

	detailTop int // first line shown of either

	input  *input
	dialog *dialog
	help   bool
	scroll int // of the help
	notice notice
	fixed  bool       // the charts' scales stay
	scales [2]float64 // of the writes, and of how long they take
}

// notice is a line that says what came of a key.
type notice struct {
	text  string
	bad   bool
	until time.Time
}

// input is a filter that is being typed.
type input struct{ text, was string }

type (
	tickMsg struct{} // it is time to look
	newMsg  struct{} // there is something new to see
	doneMsg struct {
		text string
		err  error
	}
)

func newModel(o Options, th theme, w world) *model {
	m := &model{o: o, th: th, world: w, now: time.Now, copy: func(string) error { return nil }}
	m.nodes.sort, m.tables.sort, m.tables.filter = "name", "name", o.Filter
	if o.Sort != "" {
		m.tables.sort = o.Sort
	}
	m.p.Now, m.p.Cluster = m.now(), o.Cluster
	return m
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd {
	if m.o.Fault == "command" {
		return func() tea.Msg {
			fail()
			return nil
		}
	}
	return tick()
}

func tick() tea.Cmd { return tea.Tick(frameEvery, func(time.Time) tea.Msg { return tickMsg{} }) }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tickMsg:
		if m.o.Fault == "update" {
			fail()
		}
		m.look()
		cmd = tick()
	case newMsg:
		m.look()
	case tea.WindowSizeMsg:
		m.w, m.h = msg.Width, msg.Height
	case tea.KeyMsg:
		cmd = m.keys(msg)
	case planMsg:
		m.planned(msg)
	case doneMsg:
		if msg.err != nil {
			m.say(true, "%s", clean(msg.err.Error()))
		} else {
			m.say(false, "%s", msg.text)
		}
	}
	m.settle()
	return m, cmd
}

// look takes over what is known now.
func (m *model) look() {
	if !m.paused {
		m.p = m.world.snapshot(m.now())
	}
}

func (m *model) say(bad bool, format string, args ...any) {
	m.notice = notice{text: fmt.Sprintf(format, args...), bad: bad, until: m.now().Add(noticeFor)}
}

// settle puts the cursors where their rows are now, and asks for the tables that are
// to be seen.
func (m *model) settle() {
	body := m.layout().body
	rows := m.nodeRows()
	m.nodes.settle(len(rows), body-1, func(key string) (int, bool) {
		i := slices.IndexFunc(rows, func(r nodeRow) bool { return r.id == key })
		return i, i >= 0
	}, func(i int) string { return rows[i].id })
	if m.view == viewEvents {
		events := m.eventRows()
		m.events.settle(len(events), body-1, func(key string) (int, bool) {
			i := slices.IndexFunc(events, func(e api.Event) bool { return e.ID == key })
			return i, i >= 0
		}, func(i int) string { return events[i].ID })
	}
	m.rolls.settle(len(m.p.Rolls), body-1, func(key string) (int, bool) {
		i := slices.IndexFunc(m.p.Rolls, func(r api.Roll) bool { return rollKey(&r) == key })
		return i, i >= 0
	}, m.rollKey)
	m.settleTables(body - 1)
	m.detailTop = max(0, min(m.detailTop, len(m.detail(body))-body))
}

// settleTables is settle for a list of which only a window is here.
func (m *model) settleTables(height int) {
	matched := m.matched()
	m.tables.settle(matched, height, func(key string) (int, bool) {
		if i := m.tableIndex(key); i >= 0 {
			return i, true
		}
		return m.tables.index, m.p.Query.Follow != nil && !sameQuery(m.p.Query, m.query(height)) // it is on its way
	}, m.tableKey)
	if !m.paused {
		m.world.want(m.query(height))
	}
}

// query is the question for the tables that are to be seen, and some around them.
func (m *model) query(height int) api.TableQuery {
	q := api.TableQuery{Sort: m.tables.sort, Filter: m.tables.filter}
	height = max(height, 1)
	q.Offset = max(0, m.tables.top-height/2)
	q.Limit = min(2*height, api.MaxWindow)
	if m.view != viewTables && m.view != viewTable {
		q.Offset, q.Limit = 0, 0
	}
	follow := m.tables.key
	if m.view == viewTable {
		follow = m.table.String()
		q.Limit = max(q.Limit, 1)
	}
	if follow != "" && q.Limit > 0 {
		var id api.TableID
		if id.UnmarshalText([]byte(follow)) == nil {
			q.Follow = &id
		}
	}
	return q
}

func (m *model) matched() int {
	if m.p.Status == nil || m.p.Status.Window == nil {
		return 0
	}
	return m.p.Status.Window.Matched
}

// tableIndex returns where a table is in the whole list, -1 if it is not in the window.
func (m *model) tableIndex(key string) int {
	if m.p.Status == nil || m.p.Status.Window == nil {
		return -1
	}
	i := slices.IndexFunc(m.p.Status.Tables, func(t api.Table) bool { return t.ID.String() == key })
	if i < 0 {
		return -1
	}
	return m.p.Status.Window.Offset + i
}

// tableAt returns a table of the list, nil if it is not in the window.
func (m *model) tableAt(i int) *api.Table {
	if m.p.Status == nil || m.p.Status.Window == nil {
		return nil
	}
	n := i - m.p.Status.Window.Offset
	if n < 0 || n >= len(m.p.Status.Tables) {
		return nil
	}
	return &m.p.Status.Tables[n]
}

func (m *model) tableKey(i int) string {
	if t := m.tableAt(i); t != nil {
		return t.ID.String()
	}
	return ""
}

// nodeRows returns the rows of the list of nodes, filtered and sorted.
func (m *model) nodeRows() []nodeRow {
	rows, err := sortNodes(m.p.nodes(&m.th), m.nodes.sort, m.nodes.filter)
	if err != nil {
		m.nodes.filter = "" // it was checked when it was typed
	}
	return rows
}

// eventRows returns the events, filtered, the newest first.
func (m *model) eventRows() []api.Event {
	f, err := api.ParseFilter(m.events.filter, eventFields())
	if err != nil {
		m.events.filter = ""
	}
	out := make([]api.Event, 0, len(m.p.Events))
	for _, e := range slices.Backward(m.p.Events) {
		if f.Empty() || f.Match(e.String(), eventField(&e)) {
			out = append(out, e)
		}
	}
	return out
}

func eventFields() []string { return []string{"kind", "node", "member", "table", "why"} }

func eventField(e *api.Event) func(string) api.Field {
	return func(name string) api.Field {
		switch name {
		case "kind":
			return api.NoNumber(string(e.Kind))
		case "node":
			return api.NoNumber(e.Node)
		case "member":
			return api.NoNumber(e.Member)
		case "table":
			f := api.NoNumber("")
			f.Any = append([]string{}, e.Tables...)
			return f
		}
		return api.NoNumber(e.Why)
	}
}

// list returns the list of the view, nil if it has none.
func (m *model) list() *list {
	switch m.view {
	case viewNodes:
		return &m.nodes
	case viewTables:
		return &m.tables
	case viewEvents:
		return &m.events
	case viewRolls:
		return &m.rolls
	case viewNode, viewTable:
	}
	return nil
}

// rows returns how many rows the list of the view has, and their keys.
func (m *model) rows() (int, func(int) string) {
	switch m.view {
	case viewNodes:
		rows := m.nodeRows()
		return len(rows), func(i int) string { return rows[i].id }
	case viewTables:
		return m.matched(), m.tableKey
	case viewEvents:
		rows := m.eventRows()
		return len(rows), func(i int) string { return rows[i].ID }
	case viewRolls:
		return len(m.p.Rolls), m.rollKey
	case viewNode, viewTable:
	}
	return 0, func(int) string { return "" }
}

// chosenNode returns the node under the cursor, or the one that is shown.
func (m *model) chosenNode() *nodeRow {
	rows := m.p.nodes(&m.th)
	want := m.node
	if m.view != viewNode {
		if m.view != viewNodes {
			return nil
		}
		if rows = m.nodeRows(); m.nodes.index < len(rows) {
			want = rows[m.nodes.index].id
		}
	}
	for i := range rows {
		if rows[i].id == want {
			return &rows[i]
		}
	}
	return nil
}

// chosenTable returns the table under the cursor, or the one that is shown.
func (m *model) chosenTable() *api.Table {
	switch m.view {
	case viewTable:
		return m.tableAt(m.tableIndex(m.table.String()))
	case viewTables:
		return m.tableAt(m.tables.index)
	case viewNodes, viewEvents, viewRolls, viewNode:
	}
	return nil
}

// act carries out an action beside the loop.
func (m *model) act(ctx context.Context, do func(context.Context) (string, error)) tea.Cmd {
	return func() tea.Msg {
		limited, cancel := context.WithTimeout(ctx, actLimit)
		defer cancel()
		text, err := do(limited)
		return doneMsg{text, err}
	}
}

// yank copies text to the terminal's clipboard, over ssh too.
func (m *model) yank(what, text string) {
	if text == "" {
		return
	}
	seq := "\x1b]52;c;" + base64.StdEncoding.EncodeToString([]byte(text)) + "\x07"
	if m.o.Tmux {
		seq = "\x1bPtmux;" + strings.ReplaceAll(seq, "\x1b", "\x1b\x1b") + "\x1b\\"
	}
	if err := m.copy(seq); err != nil {
		m.say(true, "the terminal takes no copy: %v", err)
		return
	}
	m.say(false, "copied %s %s, if the terminal allows it", what, clean(text))
}
