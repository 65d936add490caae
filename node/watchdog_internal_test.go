package node

import (
	"context"
	"testing"
	"time"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/ready"
	"tidal/node/internal/server"
)

// TestStallCountsWhatWasSeen: a loop that does not turn is measured by the looks at
// it; a process that stood still proves nothing.
func TestStallCountsWhatWasSeen(t *testing.T) {
	const look = watchLook
	s := stall{}
	if still := s.look(look, 0); still != look {
		t.Errorf("after one look it stands still for %v", still)
	}
	if still := s.look(2*look, 0); still != 2*look {
		t.Errorf("after two looks it stands still for %v", still)
	}
	if still := s.look(time.Hour, 0); still != 4*look {
		t.Errorf("after an hour in which nobody looked it stands still for %v", still)
	}
	if still := s.look(time.Hour+look, time.Hour); still != 0 {
		t.Errorf("it turned, and stands still for %v", still)
	}
}

// TestLiveIsPatient: who asks whether a node lives restarts it.
func TestLiveIsPatient(t *testing.T) {
	n := &node{dog: newWatchdog(Limits{})}
	n.phase.Store(new(ready.Serving))
	for _, x := range []struct {
		still time.Duration
		want  string
	}{{0, "ok"}, {stallAfter, "ok"}, {liveAfter, "unavailable"}} {
		n.dog.still.Store(int64(x.still))
		if h := (state{n}).Health(server.CheckLive); h.Status != x.want {
			t.Errorf("after %v: %+v", x.still, h)
		}
	}
}

// TestWatchdogRests: a loop that ended in good order does not stand still, however
// long the rest of the node takes to stop.
func TestWatchdogRests(t *testing.T) {
	n := &node{dog: newWatchdog(Limits{}), host: rafthost.NewHost(&rafthost.Stepper{}, 0)}
	n.dog.still.Store(int64(stallAfter))
	run, stop := context.WithCancel(t.Context())
	stop()
	rests := false
	if err := n.loop(run, func() { rests = true }); err != nil || !rests {
		t.Errorf("the loop ended with %v, and the watchdog rests: %t", err, rests)
	}
	if _, stalled := n.dog.Still(); stalled {
		t.Error("it is stalled still")
	}
}
