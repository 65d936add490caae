package owner

import (
	"math/bits"
	"sync"
	"time"

	"tidal/node/api"
)

const (
	// lateSpan is over how long times of writes are counted together: what is told of
	// them is of one to two spans.
	lateSpan = 5 * time.Second
	// lateMost is for how many tables they are counted at a time: those that are
	// written. It takes 1.2 KiB of memory for each.
	lateMost = 1024
	// lateFine is how many buckets double the time, so that it is exact to 12 %.
	lateFine    = 8
	lateFirst   = 5 // the first bucket is up to 2^5 µs
	lateBuckets = (24 - lateFirst) * lateFine
)

// late counts how long the writes of a table took, as its owner saw them.
type late struct {
	mu          sync.Mutex
	span        int64 // of now, counted from when the tables were made
	now, before [lateBuckets]uint32
}

// lateBucket returns the bucket of a time.
func lateBucket(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 1))
	e := bits.Len64(us) - 1
	if e < lateFirst {
		return 0
	}
	return min((e-lateFirst)*lateFine+int(us>>(e-3))&(lateFine-1), lateBuckets-1)
}

// lateEnd returns the time at which a bucket ends.
func lateEnd(bucket int) time.Duration {
	e, part := bucket/lateFine+lateFirst, bucket%lateFine
	return time.Duration((uint64(lateFine+part+1)<<e)/lateFine) * time.Microsecond
}

// turn makes span the newest one.
func (l *late) turn(span int64) {
	switch {
	case span <= l.span:
		return
	case span == l.span+1:
		l.before = l.now
	default:
		l.before = [lateBuckets]uint32{}
	}
	l.now, l.span = [lateBuckets]uint32{}, span
}

// add counts one write.
func (l *late) add(span int64, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(span)
	l.now[lateBucket(took)]++
}

// p99 returns the time that 99 % of the writes of the last spans did not exceed; 0 if
// there were none.
func (l *late) p99(span int64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(span)
	var all, sum uint64
	for i := range l.now {
		all += uint64(l.now[i]) + uint64(l.before[i])
	}
	for i := range l.now {
		if sum += uint64(l.now[i]) + uint64(l.before[i]); sum > 0 && 100*sum >= 99*all {
			return lateEnd(i)
		}
	}
	return 0
}

func (t *Tables) spanAt(now time.Time) int64 { return int64(now.Sub(t.made) / lateSpan) }

// took counts a write that began at a time, unless too many tables are written for
// that.
func (t *Tables) took(r *replica, begun time.Time) {
	now := time.Now()
	span := t.spanAt(now)
	l := r.late.Load()
	if l == nil {
		if l = t.watch(r, span); l == nil {
			return
		}
	}
	l.add(span, now.Sub(begun))
}

// watch begins to count a table's writes. If that are too many tables, those without a
// write for some time make room, at most once in a span.
func (t *Tables) watch(r *replica, span int64) *late {
	if t.watched.Add(1) > lateMost {
		t.watched.Add(-1)
		if last := t.swept.Load(); last == span || !t.swept.CompareAndSwap(last, span) {
			return nil
		}
		for _, other := range t.ordered() {
			t.lateOf(other, span)
		}
		if t.watched.Add(1) > lateMost {
			t.watched.Add(-1)
			return nil
		}
	}
	l := &late{span: span}
	if !r.late.CompareAndSwap(nil, l) {
		t.watched.Add(-1)
		return r.late.Load()
	}
	return l
}

// lateOf returns how long a write of a table took, 0 if there was none lately: then
// nothing is kept of them either.
func (t *Tables) lateOf(r *replica, span int64) time.Duration {
	l := r.late.Load()
	if l == nil {
		return 0
	}
	d := l.p99(span)
	if d == 0 && r.late.CompareAndSwap(l, nil) {
		t.watched.Add(-1)
	}
	return d
}

// Position is how far this node's replica of a table is and, if it owns the table, how
// long a write took in the last seconds, but for the slowest 1 %.
type Position struct {
	Table           api.TableID
	Commit, Applied uint64
	Late            time.Duration // 0: there was no write
}

// Positions calls f for each replica here, in the order of the tables' ids.
func (t *Tables) Positions(f func(Position)) {
	span := t.spanAt(time.Now())
	for _, r := range t.ordered() {
		f(Position{Table: r.info.ID, Commit: r.gauge.Commit.Load(), Applied: r.gauge.Applied.Load(), Late: t.lateOf(r, span)})
	}
}
