package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"

	"tidal/node/api"
)

// roller keeps what is asked of it.
type roller struct {
	asked []string
	plan  RollPlan
	err   error
	id    uint64
}

func (r *roller) Plan(context.Context) (RollPlan, error) { return r.plan, r.err }

func (r *roller) Start(context.Context) (string, error) {
	r.asked = append(r.asked, "start")
	return "roll 8 has begun", r.err
}

func (r *roller) Resume(_ context.Context, id, epoch uint64) (string, error) {
	r.asked = append(r.asked, fmt.Sprintf("resume %d of epoch %d", id, epoch))
	return "roll 7 goes on", r.err
}

func (r *roller) Pause(_ context.Context, id uint64) (string, error) {
	r.asked = append(r.asked, fmt.Sprintf("pause %d", id))
	return "roll 7 pauses", r.err
}

func (r *roller) Running() (id uint64, doing string) { return r.id, "node b: waits until it is level" }

// TestHandOverIsBound: what is asked about goes to the table and the owner that were on
// the screen, and not to others that took their places.
func TestHandOverIsBound(t *testing.T) {
	o := &orders{}
	f := newWorld(6)
	m := screenOf(t, f, "none", true, 100, 30)
	m.o.Source = o
	m.press("2", "j") // users, then, by their names
	first := m.chosenTable().Name
	if m.chosenTable().Owner == "" {
		m.press("j")
		first = m.chosenTable().Name
	}
	id, owner := m.chosenTable().ID.String(), m.chosenTable().Owner
	m.press("o")
	m.shows(t, "hand over table "+first)
	m.shows(t, "id "+id)
	m.shows(t, "owned by "+owner+", incarnation "+owner+".17.3f2a9c1b")
	m.press("enter", "o") // enter alone confirms nothing
	if len(o.handed) != 0 {
		t.Fatalf("handed over by enter: %q", o.handed)
	}
	run(m, m.press("y"))
	if want := fmt.Sprintf("%s %s from %s.17.3f2a9c1b to %q by test", first, id, owner, ""); len(o.handed) != 1 || o.handed[0] != want {
		t.Errorf("%q, want %q", o.handed, want)
	}
	m.settled()
	m.shows(t, "table "+first+" is owned by b")

	m.press("o", "tab")
	chosen := m.dialog.choices[1]
	run(m, m.press("y"))
	if len(o.handed) != 2 || !strings.Contains(o.handed[1], fmt.Sprintf("to %q", chosen)) {
		t.Errorf("%q, want to %s", o.handed, chosen)
	}
	m.press("o")
	s := *f.p.Status
	s.Members = append([]api.Member{}, s.Members...)
	for i := range s.Members {
		if l := s.Members[i].Lease; l != nil && s.Members[i].Node == owner {
			s.Members[i].Lease = &api.Lease{Node: owner, Incarnation: incarnation(owner, 18)}
		}
	}
	f.p.Status = &s
	run(m, m.press("y"))
	m.shows(t, "was not handed over: its owner "+owner+": it has started again")
	m.o.ReadOnly = true
	m.press("o")
	m.shows(t, "this is read-only")
	if m.dialog != nil || len(o.handed) != 2 {
		t.Errorf("read-only, it asks; handed over: %q", o.handed)
	}
	m.o.ReadOnly = false
	m.press("1", "o")
	m.shows(t, "choose a table (2)")
}

// TestRollFromHere: the same key starts a roll, pauses the one that runs and resumes
// the one that is paused, each after a question that names it.
func TestRollFromHere(t *testing.T) {
	f := newWorld(6)
	m := screenOf(t, f, "none", true, 100, 30)
	x := &roller{plan: RollPlan{Nodes: []string{"c", "b", "a"}, Notes: []string{"check owners: evil\x1b[2J"}}}
	m.o.Roller = x
	is := func(want string) {
		t.Helper()
		if len(x.asked) == 0 || x.asked[len(x.asked)-1] != want {
			t.Errorf("asked: %q, want %q", x.asked, want)
		}
	}
	m.press("R")
	m.shows(t, "resume roll 7")
	m.shows(t, "It is paused: node c does not come back")
	m.press("y", "enter")
	m.shows(t, "type 7, or press esc")
	m.press("backspace", "7")
	run(m, m.press("enter"))
	is("resume 7 of epoch 12")
	m.settled()
	m.shows(t, "roll 7 goes on")

	running := *f.p.Roll
	running.Status, running.Epoch = api.RollRunning, 13
	f.p.Roll = &running
	m.settled()
	m.press("R")
	m.shows(t, "pause roll 7")
	run(m, m.press("y"))
	is("pause 7")
	silent := int64(20_000) // its operator is gone: who is to pause is not there
	alone := running
	alone.Silent, alone.Why = &silent, ""
	f.p.Roll = &alone
	m.settled()
	want := "roll 7 stands still: nobody has heard " + alone.By + " for 20s; tidal roll resume"
	if list := f.p.problems(&m.th); !slices.ContainsFunc(list, func(p problem) bool { return p.text == want }) {
		t.Errorf("%+v, want %q", list, want)
	}
	m.press("R")
	m.shows(t, "resume roll 7")
	m.shows(t, "Nothing goes on: nobody has heard "+alone.By)
	m.press("7")
	run(m, m.press("enter"))
	is("resume 7 of epoch 13")
	f.p.Roll = &running
	m.settled()
	m.press("R")
	done := running
	done.Status = api.RollDone
	f.p.Roll = &done
	run(m, m.press("y"))
	m.shows(t, "roll 7 was not paused: it is done now")

	m.settled()
	start := func() { run(m, m.press("R")) }
	start()
	m.shows(t, "roll cluster prod")
	m.shows(t, "3 nodes are restarted in place, one after the other: c, b,")
	m.shows(t, `evil\x1b[2J`)
	m.press("prod")
	run(m, m.press("enter"))
	is("start")
	start()
	other := done
	other.ID, other.By = 8, "bob"
	f.p.Roll = &other
	m.press("prod")
	run(m, m.press("enter"))
	m.shows(t, "nothing was rolled: bob has begun roll 8")
	if n := len(x.asked); n != 4 {
		t.Errorf("asked: %q", x.asked)
	}
	x.err = errors.New("check budget blocks the roll")
	start()
	m.shows(t, "no roll: check budget blocks the roll")
	m.o.ReadOnly = true
	start()
	m.shows(t, "this is read-only")
}

// TestLeavingPausesARoll that is carried out here, and says so before.
func TestLeavingPausesARoll(t *testing.T) {
	m := screenOf(t, newWorld(6), "none", true, 100, 30)
	x := &roller{id: 7}
	m.o.Roller = x
	if cmd := m.press("q"); cmd != nil {
		t.Fatal("it leaves unasked")
	}
	m.shows(t, "roll 7 is carried out from here: node b: waits until it is")
	m.press("n")
	m.press("q")
	cmd := m.press("y")
	if cmd == nil || cmd() != tea.Quit() {
		t.Error("it stays")
	}
	m.press("4")
	m.shows(t, "from here: node b: waits until it is level")
	x.id = 0
	if cmd := m.press("q"); cmd == nil || cmd() != tea.Quit() {
		t.Error("it asks although nothing is carried out here")
	}
}
