package tui

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"tidal/node/api"
)

// orders takes the orders that a screen gives.
type orders struct {
	Source

	drained, undrained []string
	handed             []string
	err                error
}

func (o *orders) HandTable(_ context.Context, table string, h api.HandOver) (api.Table, error) {
	o.handed = append(o.handed, fmt.Sprintf("%s %s from %s to %q by %s", table, h.ID, h.Owner, h.To, h.By))
	return api.Table{Name: table, Owner: "b"}, o.err
}

func (o *orders) DrainNode(_ context.Context, node string, order api.NodeOrder) (api.NodeReport, error) {
	o.drained = append(o.drained, node+" by "+order.By)
	return api.NodeReport{Owned: 2}, o.err
}

func (o *orders) UndrainNode(_ context.Context, node string, _ api.NodeOrder) (api.NodeReport, error) {
	o.undrained = append(o.undrained, node)
	return api.NodeReport{}, o.err
}

func (m *model) shows(t *testing.T, what string) {
	t.Helper()
	if !strings.Contains(m.View(), what) {
		t.Errorf("%q is not on the screen:\n%s", what, m.View())
	}
}

func run(m *model, cmd tea.Cmd) {
	if cmd != nil {
		m.Update(cmd())
	}
}

// TestKeysThatComeTogether, as over a slow line, are as good as one by one.
func TestKeysThatComeTogether(t *testing.T) {
	m := screenOf(t, newWorld(40), "none", true, 80, 24)
	m.press("2", "jjj")
	if m.tables.index != 3 {
		t.Errorf("three rows down: at %d", m.tables.index)
	}
	m.press("/owner=a")
	m.press("enter")
	if m.tables.filter != "owner=a" || m.input != nil {
		t.Errorf("the filter is %q", m.tables.filter)
	}
	m.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("qdj"), Paste: true})
	if m.dialog != nil || m.view != viewTables {
		t.Error("what was pasted was taken for keys")
	}
}

// TestTheCursorFollowsItsRow, not its place.
func TestTheCursorFollowsItsRow(t *testing.T) {
	m := screenOf(t, newWorld(40), "none", true, 80, 24)
	m.press("j") // b
	for _, k := range []string{"s", "s", "r", "s"} {
		m.press(k)
		if r := m.chosenNode(); r == nil || r.id != "b" {
			t.Fatalf("sorted by %s the cursor is on %v", m.nodes.sort, r)
		}
	}
	f := newWorld(5000)
	m = screenOf(t, f, "none", true, 80, 24)
	m.press("2", "pgdown", "pgdown", "j")
	was := m.chosenTable()
	if was == nil || f.query.Limit > 100 {
		t.Fatalf("no table at %d; asked for %d", m.tables.index, f.query.Limit)
	}
	for range 5 {
		m.press("end", "home", "end")
	}
	if x := m.chosenTable(); m.tables.index != 4999 || x == nil {
		t.Errorf("at the end: %d, %v", m.tables.index, x)
	}
	m.press("home")
	if m.tables.key != "" || m.tables.index != 0 || f.query.Follow != nil {
		t.Errorf("at the top it follows a row: %q", m.tables.key)
	}
	m.press("j", "enter")
	m.shows(t, "sessions")
	if f.query.Follow == nil || *f.query.Follow != m.table {
		t.Error("the table that is shown is not asked for")
	}
}

// TestActionsNameTheirTarget: what was confirmed is done to the node that was asked
// about, however the list has changed; and not at all to another incarnation.
func TestActionsNameTheirTarget(t *testing.T) {
	o := &orders{}
	f := newWorld(6)
	m := screenOf(t, f, "none", true, 80, 24)
	m.o.Source = o
	m.press("d")
	m.shows(t, "drain node a")
	m.shows(t, "a.17.3f2a9c1b")
	m.press("s", "x") // typed, not keys of the list
	m.press("backspace", "backspace", "enter")
	m.shows(t, "type a, or press esc")
	s := *f.p.Status
	s.Members = append([]api.Member{s.Members[4]}, s.Members[:4]...)
	f.p.Status = &s
	m.press("a")
	run(m, m.press("enter"))
	if len(o.drained) != 1 || o.drained[0] != "a by test" {
		t.Errorf("drained: %q", o.drained)
	}
	m.settled()
	m.shows(t, "node a drains: 2 tables left")

	m.press("d", "a")
	s.Members[1].Lease = &api.Lease{Node: "a", Incarnation: incarnation("a", 18)}
	run(m, m.press("enter"))
	m.shows(t, "it has started again, as a.18.3f2a9c1b")
	if len(o.drained) != 1 {
		t.Errorf("another incarnation was drained: %q", o.drained)
	}

	m.press("home", "j", "u")
	m.shows(t, "undrain node b")
	m.press("n")
	m.shows(t, "nothing was done")
	m.press("u", "enter") // enter alone confirms nothing
	if len(o.undrained) != 0 {
		t.Errorf("undrained by enter: %q", o.undrained)
	}
	o.err = errors.New("no \x1b[2J way")
	m.press("u")
	run(m, m.press("y"))
	if len(o.undrained) != 1 || o.undrained[0] != "b" {
		t.Errorf("undrained: %q", o.undrained)
	}
	m.shows(t, `no \x1b[2J way`)
	m.press("home", "j", "j", "d")
	m.shows(t, "node c is down: it cannot be drained")
	m.o.ReadOnly = true
	m.press("home", "d")
	m.shows(t, "this is read-only")
	if m.dialog != nil {
		t.Error("read-only, it asks")
	}
}

// TestNothingIsDoneToWhatNobodyKnows: while nobody answers, no action is sent.
func TestNothingIsDoneToWhatNobodyKnows(t *testing.T) {
	o := &orders{}
	f := newWorld(6)
	m := screenOf(t, f, "none", true, 80, 24)
	m.o.Source = o
	m.press("j", "u")
	f.p.At = at.Add(-5 * time.Second)
	run(m, m.press("y"))
	m.shows(t, "nobody answers now")
	if len(o.undrained) != 0 {
		t.Errorf("undrained: %q", o.undrained)
	}
}

// TestOldIsShownAsOld: what was known when the last node answered is marked.
func TestOldIsShownAsOld(t *testing.T) {
	f := newWorld(6)
	f.p.At, f.p.Err, f.p.Tries = at.Add(-12*time.Second), "connection refused", 9
	m := screenOf(t, f, "none", true, 120, 24)
	m.shows(t, "NO ANSWER")
	m.shows(t, "no answer from any node for 12s (9 tries): connection refused")
	m.shows(t, "12s old")
	if strings.Contains(m.View(), "* serving") || strings.Contains(m.View(), "via a live") {
		t.Errorf("old data looks new:\n%s", m.View())
	}
	m.press("2")
	for l := range strings.Lines(m.View()) {
		if strings.HasPrefix(strings.TrimLeft(l, "> "), "orders") && (!strings.Contains(l, "? degraded") || !strings.Contains(l, "a?")) {
			t.Errorf("an old owner looks new: %s", l)
		}
	}
	m.press("enter")
	m.shows(t, "stale, was degraded")
}

// TestStates: each state of a node has its word, its symbol and its reason.
func TestStates(t *testing.T) {
	m := screenOf(t, newWorld(6), "none", true, 160, 100)
	for _, what := range []string{"* serving", "- draining", "x down", "? stale 1.8s", "+ joining", "node c down: it has no lease", "receives a snapshot", "(+"} {
		if what != "(+" {
			m.shows(t, what)
		}
	}
	// The countdown goes on between two answers.
	m.now = func() time.Time { return at.Add(900 * time.Millisecond) }
	m.settled()
	m.shows(t, "2.5s")
}

// TestPauseStandsStill, and says for how long.
func TestPauseStandsStill(t *testing.T) {
	f := newWorld(6)
	m := screenOf(t, f, "none", true, 120, 24)
	m.press("p")
	f.p.Status = wellWorld().p.Status
	m.now = func() time.Time { return at.Add(34 * time.Second) }
	m.settled()
	m.shows(t, "paused, 34s old")
	m.shows(t, "node c down")
	m.press("p")
	if strings.Contains(m.View(), "node c down") {
		t.Error("it still stands")
	}
}

func TestCopy(t *testing.T) {
	m := screenOf(t, newWorld(6), "none", true, 80, 24)
	var got string
	m.copy = func(s string) error { got = s; return nil }
	want := base64.StdEncoding.EncodeToString([]byte("a.17.3f2a9c1b"))
	m.press("y")
	if got != "\x1b]52;c;"+want+"\x07" {
		t.Errorf("%q", got)
	}
	m.shows(t, "copied incarnation a.17.3f2a9c1b")
	m.o.Tmux = true
	m.press("2")
	m.press("y")
	if !strings.HasPrefix(got, "\x1bPtmux;\x1b\x1b]52;c;") {
		t.Errorf("in tmux: %q", got)
	}
}

// TestUnknownIsLast: an unknown lag is no small one, in either direction; and what is
// near zero is not hidden behind a spike of the chart when its scale is fixed.
func TestUnknownIsLast(t *testing.T) {
	m := screenOf(t, newWorld(6), "none", true, 160, 40)
	for _, by := range []string{"lease", "-lease", "requests", "-p99"} {
		m.nodes.sort = by
		rows := m.nodeRows()
		if last := rows[len(rows)-1]; last.id != "c" && last.id != "d" {
			t.Errorf("by %s the last one is %s", by, last.id)
		}
	}
	if got := chart([]float64{1, 2, 5, 9000}, 4, 2, 5, []string{"_", "1", "2", "3", "4"}); got[0] == got[1] || !strings.Contains(got[0], "4") {
		t.Errorf("%q", got)
	}
}

// TestFilterIsCheckedWhileTyped: what is no filter is told, and changes nothing.
func TestFilterIsCheckedWhileTyped(t *testing.T) {
	m := screenOf(t, newWorld(40), "none", true, 80, 24)
	m.press("2", "/lag>1")
	m.press("0")
	if m.tables.filter != "lag>10" {
		t.Errorf("the filter is %q", m.tables.filter)
	}
	m.press("x")
	m.shows(t, "want a number")
	if m.tables.filter != "lag>10" {
		t.Errorf("the filter is %q", m.tables.filter)
	}
	m.press("esc")
	if m.tables.filter != "" || m.input != nil {
		t.Errorf("after escape the filter is %q", m.tables.filter)
	}
}

func TestHelpScrollsWhereThereIsLittleRoom(t *testing.T) {
	m := screenOf(t, newWorld(6), "none", true, 70, 10)
	m.press("?")
	m.shows(t, "nodes, tables, events, rolls")
	for range 40 {
		m.press("j")
	}
	m.shows(t, "counts down")
	m.press("x")
	if m.help {
		t.Error("the help stays")
	}
}

// TestAFilterThatIsNone can be mended: it is not left, and says whole what is wrong.
func TestAFilterThatIsNone(t *testing.T) {
	m := screenOf(t, newWorld(6), "none", true, 40, 24)
	m.press("2", "/owne=a", "enter")
	m.shows(t, "replicas, id") // the end of a long line
	if m.input == nil || m.input.text != "owne=a" {
		t.Fatalf("what was typed is gone: %v", m.input)
	}
	check(t, "a filter that is none", m.View(), 40, 24)
	m.press("backspace", "backspace", "r=a", "enter")
	if m.input != nil || m.tables.filter != "owner=a" {
		t.Errorf("mended, the filter is %q", m.tables.filter)
	}
}

// TestALongDetailScrolls, says how much more there is, and no further than its end.
func TestALongDetailScrolls(t *testing.T) {
	m := screenOf(t, newWorld(6), "none", true, 60, 14)
	m.press("enter")
	m.shows(t, "node a")
	m.shows(t, "more lines: j")
	m.press("end", "down", "down")
	m.shows(t, "since start")
	if strings.Contains(m.View(), "more lines") {
		t.Errorf("there is more than all:\n%s", m.View())
	}
	m.press("up")
	m.shows(t, "2 more lines: j")
	m.press("esc", "enter")
	m.shows(t, "node a")
}

// TestANoticeGoes with the next thing that is done.
func TestANoticeGoes(t *testing.T) {
	m := screenOf(t, wellWorld(), "none", true, 80, 24)
	m.press("u")
	m.shows(t, "node a is not drained")
	if m.dialog != nil {
		t.Error("it asks whether to undrain what is not drained")
	}
	m.press("d")
	m.shows(t, "esc leaves it, and nothing is done")
}
