package node

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tidal/node/api"
	"tidal/node/config"
	"tidal/node/internal/router"
)

// TestEventsThatAreGone: who asks for more than is kept is told how much is missing,
// and misses nothing else.
func TestEventsThatAreGone(t *testing.T) {
	n := &node{log: slog.New(slog.DiscardHandler)}
	n.o.Config = config.Default()
	n.o.Config.Node.ID = "a"
	n.who.Incarnation = api.Incarnation{Node: "a", Start: 3, Suffix: 9}
	n.meters = &meters{events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"kind"})}
	e := newEvents(n)
	list, last, more, err := e.After("")
	if err != nil || len(list) != 0 || last != "a.3.00000009/0" {
		t.Fatal(list, last, err)
	}
	for range eventsKept + 10 {
		e.tell(api.Event{Kind: api.EventPhase})
	}
	<-more
	list, now, _, err := e.After(last)
	if err != nil || len(list) != eventsKept+1 || list[0].Kind != api.EventGap || list[0].Count != 10 || list[0].ID != "a.3.00000009/10" || list[1].ID != "a.3.00000009/11" {
		t.Errorf("%d events, %+v, %v", len(list), list[0], err)
	}
	if again, _, _, err := e.After(list[0].ID); err != nil || len(again) != eventsKept {
		t.Errorf("after the gap: %d, %v", len(again), err)
	}
	if rest, _, _, err := e.After(now); err != nil || len(rest) != 0 {
		t.Errorf("after the last: %v, %v", rest, err)
	}
	for _, of := range []string{"a.2.00000009/5", "b.3.00000009/2000", ""} {
		if all, _, _, err := e.After(of); err != nil || len(all) != eventsKept {
			t.Errorf("after %q, of another incarnation: %d events, %v", of, len(all), err)
		}
	}
	if _, _, _, err := e.After("nonsense"); api.CodeOf(err) != api.CodeBadRequest {
		t.Error(err)
	}
	if far, _, _, err := e.After("a.3.00000009/999999"); err != nil || len(far) != 0 {
		t.Errorf("after one that is yet to come: %d, %v", len(far), err)
	}
}

// TestRefusalsAreCountedTogether: a thousand refusals are one event.
func TestRefusalsAreCountedTogether(t *testing.T) {
	n := &node{}
	n.o.Config.Node.ID = "a"
	e := newEvents(n)
	for range 1000 {
		e.request(router.Event{Table: "t", Code: api.CodeNoOwner})
		e.request(router.Event{Table: "u", Code: api.CodeRowNotFound})
	}
	e.request(router.Event{Table: "u", Code: api.CodeNoOwner})
	got := e.takeRefused()
	if len(got) != 1 || got[0].Count != 1001 || got[0].Why != "no-owner" || len(got[0].Tables) != 2 {
		t.Errorf("%+v", got)
	}
	if again := e.takeRefused(); again != nil {
		t.Errorf("told again: %+v", again)
	}
}
