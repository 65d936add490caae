package generic_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// TestOneAnswerMissed: a node that does not say once which run of it there is runs on, for
// all anybody knows: it is drained before it is restarted. One that goes on not to answer
// pauses the roll.
func TestOneAnswerMissed(t *testing.T) {
	t.Parallel()
	for _, times := range []int64{1, 1 << 30} {
		p, s := newPlayed(t)
		o := newOperator(t, s)
		var missed atomic.Int64
		missed.Store(1 << 30)
		p.play(func(node, what string) (int, string, bool) {
			return http.StatusBadGateway, "", node == "n2" && what == "run" && missed.Add(1) <= times
		})
		o.begin(t, roll.Options{Stall: 300 * time.Millisecond})
		o.runner.Say = func(e roll.Event) {
			if e.Node == "n2" && e.State == roll.StateCheck {
				missed.Store(0)
			}
		}
		_, err := o.runner.Run(t.Context())
		if times == 1 {
			want := []string{"drain n1", "restart n1 1", "undrain n1", "drain n2", "restart n2 1", "undrain n2", "drain n3", "restart n3 1", "undrain n3"}
			if got := p.log(); err != nil || !slices.Equal(got, want) {
				t.Errorf("what was run is %v, %v", got, err)
			}
			continue
		}
		trouble, ok := errors.AsType[*roll.TroubleError](err)
		if !ok || !strings.Contains(trouble.Why, "node n2 has answered, and does not now: its incarnation is not known") || !strings.Contains(trouble.Hint, "tidal roll abort") {
			t.Errorf("%+v", err)
		}
		if got := p.restarted(); !slices.Equal(got, []string{"n1"}) {
			t.Errorf("restarted were %v", got)
		}
	}
}

// TestGivenBackAtLast: a roll that gives up tries the undrain again until it succeeds. Where
// it never does the roll is not aborted: a node is drained still.
func TestGivenBackAtLast(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, undrain string
		back          bool
	}{
		{"at the second time", "echo undrain {node} >> {log}; [ $(grep -c undrain {log}) -ge 2 ]", true},
		{"never", "echo undrain {node} >> {log}; false", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p, s := newPlayed(t)
			s.Undrain = tc.undrain
			o := newOperator(t, s)
			o.begin(t, roll.Options{Stall: time.Second})
			stop := make(chan struct{})
			o.runner.Stop = stop
			o.runner.Say = func(e roll.Event) {
				if e.State == roll.StateDrain {
					ask := api.RollChange{Ask: api.RollAskAbort}
					if _, err := o.journal.ChangeRoll(t.Context(), api.RollAsk, 0, ask); err != nil {
						t.Error(err)
					}
					<-time.After(3 * time.Second) // until it is heard
				}
			}
			_, err := o.runner.Run(t.Context())
			trouble, paused := errors.AsType[*roll.TroubleError](err)
			switch {
			case tc.back && !errors.Is(err, roll.ErrAborted):
				t.Error(err)
			case !tc.back && (!paused || !strings.Contains(trouble.Why, "asked to abort, and a node is drained still: node n1")):
				t.Error(err)
			}
			if p.count("undrain n1") < 2 || len(p.restarted()) > 0 {
				t.Errorf("what was run is %v", p.log())
			}
		})
	}
}

// TestJournalOutOfReach: whose roll it is is not known for a moment: nothing is left out
// for that, neither the restart nor the giving back.
func TestJournalOutOfReach(t *testing.T) {
	t.Parallel()
	p, s := newPlayed(t)
	o := newOperator(t, s)
	o.begin(t, roll.Options{Only: []string{"n1"}})
	holds := o.cluster.Holds
	var asked atomic.Int64
	o.cluster.Holds = func(ctx context.Context, h roll.Hold) error {
		if asked.Add(1)%2 == 1 { // each is asked for twice: before the drain, the restart and the undrain
			return &api.Error{Code: api.CodeOutcomeUnknown, Message: "no leader"}
		}
		return holds(ctx, h)
	}
	// Whether the drain can be begun is known at once, or the roll pauses.
	o.runner.Say = func(e roll.Event) {
		if e.State == roll.StateClaim {
			asked.Store(1)
		}
		if e.State == roll.StateStop || e.State == roll.StateStarted {
			asked.Store(0)
		}
	}
	if _, err := o.runner.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := p.log(), []string{"drain n1", "restart n1 1", "undrain n1"}; !slices.Equal(got, want) {
		t.Errorf("what was run is %v, want %v", got, want)
	}
}

// TestVersionComesLater: a node whose new run is known before its version is waited for.
func TestVersionComesLater(t *testing.T) {
	t.Parallel()
	p, s := newPlayed(t)
	asked := filepath.Join(p.dir, "asked")
	s.Version = "if ! grep -q 'restart {node}' {log}; then echo 1.0; exit; fi; echo once >> " + asked + `
if [ $(wc -l < ` + asked + `) -le 3 ]; then echo it starts; exit 1; fi; echo 2.0`
	o := newOperator(t, s)
	o.begin(t, roll.Options{Only: []string{"n1"}, Version: "2.0"})
	if _, err := o.runner.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(asked); err != nil || strings.Count(string(text), "\n") < 4 {
		t.Errorf("it was asked so often: %q, %v", text, err)
	}
}

// TestLeaderDoesNotSay: a node that led, and does not answer whether it leads, leads still
// for all anybody knows. That another says so too changes nothing.
func TestLeaderDoesNotSay(t *testing.T) {
	t.Parallel()
	p, s := newPlayed(t)
	hung := filepath.Join(p.dir, "hung")
	// It hangs for longer than a probe may, five times; n3 says that it leads all the while.
	s.ProbeLimit = "150ms"
	s.Leader = `case {node} in n3) exit 0;; n2) exit 1;; esac
if ! grep -q 'drain n1' {log}; then exit 0; fi
echo once >> ` + hung + `; if [ $(wc -l < ` + hung + `) -le 5 ]; then exec sleep 60; fi
echo says no >> {log}; exit 1`
	o := newOperator(t, s)
	o.begin(t, roll.Options{Only: []string{"n1"}})
	if _, err := o.runner.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := p.log(), []string{"drain n1", "says no", "restart n1 1"}; len(got) < 3 || !slices.Equal(slices.Compact(got)[:3], want) {
		t.Errorf("what was run is %v, want %v at first", got, want)
	}
}

// TestProbeIsNotSentOn: a page that leads to another one says nothing of its node.
func TestProbeIsNotSentOn(t *testing.T) {
	t.Parallel()
	_, s := newPlayed(t)
	other := s.Ready.(string)
	srv := httptest.NewServer(http.RedirectHandler(strings.Replace(other, "{node}", "n1", 1), http.StatusTemporaryRedirect))
	t.Cleanup(srv.Close)
	s.Ready = srv.URL
	o := newOperator(t, s)
	v, err := o.cluster.View(t.Context())
	if err != nil || v.Nodes[1].Ready() || !strings.Contains(v.Nodes[1].Wrong[0], "307 Temporary Redirect to http") {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestCommandIsNotCutOff: whoever takes a roll by force finds that the command under way is
// finished, and the one who had it begins nothing more.
func TestCommandIsNotCutOff(t *testing.T) {
	t.Parallel()
	p, s := newPlayed(t)
	s.Restart = "echo down {node} >> {log}; sleep 4; echo restart {node} >> {log}"
	first, second := newOperator(t, s), newOperator(t, s)
	first.begin(t, roll.Options{})
	ended := make(chan error, 1)
	go func() {
		_, err := first.runner.Run(t.Context())
		ended <- err
	}()
	for p.count("down n1") == 0 {
		<-time.After(10 * time.Millisecond)
	}
	if _, err := second.journal.ChangeRoll(t.Context(), api.RollTake, 0, api.RollChange{Epoch: 1, By: "bob", Force: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, roll.ErrTaken) {
		t.Error(err)
	}
	if got, want := p.log(), []string{"drain n1", "down n1", "restart n1"}; !slices.Equal(got, want) {
		t.Errorf("what was run is %v, want %v", got, want)
	}
}

// TestAnswerInOtherIDs: a node that is not ready, and says so under another id each time,
// makes no progress.
func TestAnswerInOtherIDs(t *testing.T) {
	t.Parallel()
	p, s := newPlayed(t)
	var n atomic.Int64
	p.play(func(node, what string) (int, string, bool) {
		id := n.Add(1)
		text := "request 7f3a-" + strings.Repeat("0", 6) + string(rune('a'+id%6)) + string(rune('a'+id/6%6)) + string(rune('a'+id/36%6)) + ": not yet"
		return http.StatusServiceUnavailable, text, node == "n1" && what == "ready" && p.count("restart n1") > 0
	})
	o := newOperator(t, s)
	o.begin(t, roll.Options{Stall: 300 * time.Millisecond})
	_, err := o.runner.Run(t.Context())
	trouble, ok := errors.AsType[*roll.TroubleError](err)
	if !ok || !strings.Contains(trouble.Why, "request …: not yet") {
		t.Error(err)
	}
}

// TestDrainedComesFirst: a node that an operator had drained who died then is drained still.
// It comes before all others, whatever their order is by now.
func TestDrainedComesFirst(t *testing.T) {
	t.Parallel()
	p, s := newPlayed(t)
	s.Quorum = 1
	var well atomic.Bool
	p.play(func(node, what string) (int, string, bool) {
		return http.StatusServiceUnavailable, "", node == "n3" && what == "ready" && !well.Load()
	})
	first := newOperator(t, s)
	first.begin(t, roll.Options{})
	ctx, die := context.WithCancel(t.Context())
	first.runner.Say = func(e roll.Event) {
		if e.State == roll.StateDrain {
			die()
		}
	}
	if _, err := first.runner.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("it died with %v", err)
	}
	first.journal.Close()
	well.Store(true)
	second := newOperator(t, s)
	second.resume(t)
	if _, err := second.runner.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.restarted(); !slices.Equal(got, []string{"n3", "n1", "n2"}) {
		t.Errorf("restarted were %v", got)
	}
}
