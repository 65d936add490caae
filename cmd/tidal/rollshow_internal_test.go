package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// TestWatchInOrder: who begins to watch a roll that goes on is shown what was noted in
// the order in which it was, of all nodes, and nothing twice.
func TestWatchInOrder(t *testing.T) {
	at := func(s int) api.RollStep { return api.RollStep{State: "done", At: time.Unix(int64(s), 0)} }
	r, seen := &api.Roll{Nodes: []api.RollNode{
		{Node: "a", Steps: []api.RollStep{at(3), at(4)}}, {Node: "b", Steps: []api.RollStep{at(1), at(2)}},
	}}, map[string]api.RollStep{}
	shown := func() (out []string) {
		for _, e := range newSteps(r, seen) {
			out = append(out, e.Node+e.Time.UTC().Format("05"))
		}
		return out
	}
	if got, want := shown(), []string{"b01", "b02", "a03", "a04"}; !slices.Equal(got, want) {
		t.Errorf("shown is %v, want %v", got, want)
	}
	r.Nodes[0].Steps = append(r.Nodes[0].Steps, at(5))
	if got, want := shown(), []string{"a05"}; !slices.Equal(got, want) {
		t.Errorf("shown next is %v, want %v", got, want)
	}
	r.Nodes[0].Steps = append(r.Nodes[0].Steps[1:], at(6)) // the journal keeps so many
	if got, want := shown(), []string{"a06"}; !slices.Equal(got, want) {
		t.Errorf("after the journal has dropped a step shown is %v, want %v", got, want)
	}
	r.Nodes[0].Steps = []api.RollStep{at(8), at(9)} // and may drop all that was seen
	if got, want := shown(), []string{"a08", "a09"}; !slices.Equal(got, want) {
		t.Errorf("after the journal has dropped all that was seen shown is %v, want %v", got, want)
	}
	if got := shown(); len(got) > 0 {
		t.Errorf("shown twice is %v", got)
	}
}

// askedTerminal calls a function, once, while it takes in a line that is to be overwritten.
type askedTerminal struct {
	bytes.Buffer

	meanwhile func()
}

func (a *askedTerminal) Write(p []byte) (int, error) {
	if call := a.meanwhile; call != nil && bytes.HasSuffix(p, []byte("waits")) {
		a.meanwhile = nil
		call()
	}
	return a.Buffer.Write(p)
}

// TestToldBetweenEvents: what whoever restarts the nodes says while another goroutine shows
// an event stands on a line of its own.
func TestToldBetweenEvents(t *testing.T) {
	screen := &askedTerminal{}
	shown := &rollShown{rolling: &rolling{app: &app{stderr: screen}}, terminal: true}
	told := make(chan struct{})
	screen.meanwhile = func() {
		go func() {
			shown.tell("restart node a now")
			close(told)
		}()
		select {
		case <-told:
			t.Error("it was said in the middle of another line")
		case <-time.After(100 * time.Millisecond): // it waits for its turn
		}
	}
	shown.event(roll.Event{Event: "wait", Note: "waits"})
	<-told
	if !strings.HasSuffix(screen.String(), "  waits\r\x1b[Krestart node a now\n") {
		t.Errorf("shown is %q", screen.String())
	}
}
