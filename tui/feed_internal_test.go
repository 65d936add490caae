package tui

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
)

// nodes are three nodes that answer as the test says.
type nodes struct {
	Source

	mu     sync.Mutex
	away   map[string]bool          // it answers nothing
	slow   map[string]time.Duration // it takes so long
	asked  map[string]int
	tell   map[string]chan api.Event
	begun  time.Time
	silent *int64
}

var errAway = errors.New("connection refused")

func newNodes() *nodes {
	n := &nodes{away: map[string]bool{}, slow: map[string]time.Duration{}, asked: map[string]int{}, tell: map[string]chan api.Event{}, begun: time.Now()}
	for _, id := range []string{"a", "b", "c"} {
		n.tell["http://"+id] = make(chan api.Event)
	}
	return n
}

func (n *nodes) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *nodes) Endpoints() []string { return []string{"http://b", "http://c"} }

func (n *nodes) answers(ctx context.Context, endpoint string) error {
	n.mu.Lock()
	away, slow := n.away[endpoint], n.slow[endpoint]
	n.asked[endpoint]++
	n.mu.Unlock()
	if away {
		return errAway
	}
	select {
	case <-time.After(slow):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *nodes) Window(ctx context.Context, endpoint string, _ api.TableQuery) (api.Status, error) {
	if err := n.answers(ctx, endpoint); err != nil {
		return api.Status{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := api.Status{Node: endpoint[7:], MetaLeader: "a", Window: &api.Window{Total: 1, Writes: new(5.0)}, Tables: []api.Table{{Name: "t", ID: 2, Writes: new(5.0)}}}
	for _, id := range []string{"a", "b", "c"} {
		l := &api.Lease{Node: id, Incarnation: incarnation(id, 1), Address: "http://" + id}
		s.Members = append(s.Members, api.Member{Node: id, Live: true, Lease: l, Address: "http://" + id, Silent: n.silent})
	}
	return s, nil
}

func (n *nodes) Brief(ctx context.Context, endpoint string) (api.LocalStatus, error) {
	err := n.answers(ctx, endpoint)
	count := uint64(time.Since(n.begun).Seconds() * 100)
	return api.LocalStatus{
		Node: endpoint[7:], Incarnation: incarnation(endpoint[7:], 1), Ready: true,
		Requests: api.RequestCounts{Answered: count, LongestMicros: 100_000, Buckets: []api.RequestBucket{
			{Bucket: api.BucketOf(1000), Count: count - count/2}, {Bucket: api.BucketOf(95_000), Count: count / 2},
		}},
	}, err
}

func (n *nodes) Events(ctx context.Context, endpoint, _ string, f func(api.Event)) error {
	n.mu.Lock()
	tell := n.tell[endpoint]
	n.mu.Unlock()
	if err := n.answers(ctx, endpoint); err != nil {
		return err
	}
	for {
		select {
		case e, ok := <-tell:
			if !ok {
				<-ctx.Done() // it tells nothing more
				return ctx.Err()
			}
			if e.Kind == "" {
				return errAway
			}
			f(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// feeding runs a feed in virtual time.
func feeding(t *testing.T, f func(n *nodes, x *feed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNodes()
		ctx, cancel := context.WithCancelCause(t.Context())
		x := newFeed(n, "prod", DefaultInterval)
		x.run(ctx)
		f(n, x)
		cancel(nil)
		x.tasks.Wait()
	})
}

// within waits for a condition and returns how long that took.
func within(t *testing.T, d time.Duration, what string, f func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !f() {
		if time.Since(begun) > d {
			t.Fatalf("%s: not within %v", what, d)
		}
		<-time.After(10 * time.Millisecond)
	}
	return time.Since(begun)
}

func TestFeedAsksWhoKnowsBest(t *testing.T) {
	feeding(t, func(n *nodes, x *feed) {
		now := func() Picture { return x.snapshot(time.Now()) }
		within(t, time.Second, "the leader's answer", func() bool { return now().From == "http://a" })
		within(t, 5*time.Second, "what each node says", func() bool {
			p := now()
			return len(p.Locals) == 3 && p.Locals["c"].Rate > 99 && p.Locals["c"].Rate < 101
		})
		if p99 := now().Locals["a"].P99; p99 < 0.09 || p99 > 0.1 {
			t.Errorf("the 99th percentile is %v s", p99)
		}
		n.set(func() { n.slow["http://a"] = time.Hour })
		took := within(t, time.Second, "another's answer", func() bool { return now().From != "http://a" })
		if took > DefaultInterval+2*hedgeAfter {
			t.Errorf("a node that hangs held the answer up for %v", took)
		}
		<-time.After(3 * time.Second)
		if p := now(); p.old() || p.Locals["a"].Err == "" || p.Now.Sub(p.Locals["b"].At) > time.Second {
			t.Errorf("while a hangs: status %v old, a %+v, b %v old", p.age(), p.Locals["a"].Err, p.Now.Sub(p.Locals["b"].At))
		}
	})
}

// TestFeedStays when everybody goes, for a minute, and comes back with them.
func TestFeedStays(t *testing.T) {
	feeding(t, func(n *nodes, x *feed) {
		within(t, time.Second, "an answer", func() bool { return x.snapshot(time.Now()).Status != nil })
		n.set(func() { n.away["http://a"], n.away["http://b"], n.away["http://c"] = true, true, true })
		<-time.After(time.Minute)
		p := x.snapshot(time.Now())
		if p.Status == nil || !p.old() || p.Tries < 20 || !strings.Contains(p.Err, "refused") {
			t.Errorf("after a minute: %d tries, %q, %v old", p.Tries, p.Err, p.age())
		}
		n.set(func() { n.away["http://c"] = false })
		within(t, restAfterNone+500*time.Millisecond, "an answer again", func() bool { p := x.snapshot(time.Now()); return !p.old() && p.Tries == 0 })
	})
}

// TestFeedLooksSoonerAtWhoIsLate, so that silence shows within a second.
func TestFeedLooksSoonerAtWhoIsLate(t *testing.T) {
	feeding(t, func(n *nodes, x *feed) {
		rate := func() int {
			n.mu.Lock()
			before := n.asked["http://a"]
			n.mu.Unlock()
			<-time.After(10 * time.Second)
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.asked["http://a"] - before
		}
		<-time.After(time.Second)
		usual := rate()
		n.set(func() { n.silent = new(int64(300)) })
		if late := rate(); late < usual+30 {
			t.Errorf("asked %d times, and %d times while a node is late", usual, late)
		}
	})
}

// TestFeedFollowsOneStream of what concerns the cluster, and goes on with another's
// when it breaks off: nothing is lost, nothing told twice.
func TestFeedFollowsOneStream(t *testing.T) {
	feeding(t, func(n *nodes, x *feed) {
		within(t, 2*time.Second, "the streams", func() bool { return len(x.snapshot(time.Now()).Locals) == 3 })
		<-time.After(time.Second)
		number := 0
		tell := func(from string, kind api.EventKind, why string) {
			number++
			n.tell["http://"+from] <- api.Event{ID: fmt.Sprint(number), Time: time.Now(), Node: from, Kind: kind, Member: "x", Why: why}
			<-time.After(10 * time.Millisecond)
		}
		tell("b", api.EventHeartbeat, "")
		for _, from := range []string{"b", "a", "c"} { // b's stream is the one
			tell(from, api.EventLeaseEnded, "first")
		}
		tell("c", api.EventSnapshot, "own")
		n.tell["http://b"] <- api.Event{} // it breaks off
		close(n.tell["http://b"])
		n.set(func() { n.away["http://b"] = true })
		<-time.After(10 * time.Millisecond)
		for _, from := range []string{"a", "c"} {
			tell(from, api.EventLease, "second")
		}
		var got []string
		for _, e := range x.snapshot(time.Now()).Events {
			got = append(got, e.Why)
		}
		if strings.Join(got, " ") != "first own second" {
			t.Errorf("told: %q", got)
		}
	})
}

func TestAmountsAreShort(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 1: "1", 999: "999", 999.6: "1.0k", 1234: "1.2k", 99949: "99.9k", 120400: "120k", 1e18: "1.0E", 1e300: "1e300", 0.25: "0.2", math.Inf(1): "-"} {
		if got := amount(n); got != want || len(got) > 5 {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-1: "-", 0: "0s", 900 * time.Microsecond: "900µs", 4200 * time.Microsecond: "4.2ms", 3 * time.Second: "3.0s", 90 * time.Second: "90s", 25 * time.Hour: "25h", 99 * time.Hour: "4d"} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
