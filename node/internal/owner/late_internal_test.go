package owner

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// TestLateIsThe99thPercentile: to 12 %, of what came in the last spans.
func TestLateIsThe99thPercentile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, scale := range []time.Duration{100 * time.Microsecond, 3 * time.Millisecond, time.Second} {
		l := &late{}
		var all []time.Duration
		for range 5000 {
			d := time.Duration(random.ExpFloat64() * float64(scale))
			all = append(all, d)
			l.add(int64(len(all)/2500), d)
		}
		slices.Sort(all)
		want, got := all[len(all)*99/100], l.p99(1)
		if got < want*98/100 || got > want*115/100 {
			t.Errorf("around %v: %v, want %v", scale, got, want)
		}
		l.add(2, time.Hour)
		if got := l.p99(3); got != lateEnd(lateBuckets-1) {
			t.Errorf("what is older than two spans counts: %v", got)
		}
		if got := l.p99(9); got != 0 {
			t.Errorf("long after the last write: %v", got)
		}
	}
}

func TestLateBuckets(t *testing.T) {
	for us := int64(1); us < 40_000_000; us += 1 + us/50 {
		d := time.Duration(us) * time.Microsecond
		b := lateBucket(d)
		if end := lateEnd(b); b < lateBuckets-1 && (end <= d || us >= 64 && end > d*113/100) {
			t.Fatalf("%v is in bucket %d, which ends at %v", d, b, end)
		}
	}
}

// TestLateIsBounded: however many tables are written, the times of some are counted,
// and those that rest make room.
func TestLateIsBounded(t *testing.T) {
	x := New(Options{Node: "a"})
	for i := range 2 * lateMost {
		r := &replica{info: wire.Table{ID: api.TableID(i + 1)}}
		x.mu.open[r.info.ID] = r
	}
	begun := x.made
	counted := func() (n int) {
		x.Positions(func(p Position) {
			if p.Late > 0 {
				n++
			}
		})
		return n
	}
	for _, r := range x.ordered() {
		x.took(r, begun)
	}
	if n := counted(); n != lateMost || x.watched.Load() != lateMost {
		t.Errorf("%d tables are counted, %d held", n, x.watched.Load())
	}
	x.made = x.made.Add(-3 * lateSpan) // so much later
	last := x.ordered()[2*lateMost-1]
	x.took(last, begun)
	if n := counted(); n != 1 || x.watched.Load() != 1 {
		t.Errorf("after a rest %d tables are counted, %d held", n, x.watched.Load())
	}
}
