package rafthost

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"tidal/node/internal/store"
)

// TestRaftPanics: what the disk did is told as that, whatever raft was at, and the rest
// as a defect.
func TestRaftPanics(t *testing.T) {
	panicked := func(f string, v ...any) (what any) {
		defer func() { what = recover() }()
		raftLogger{group: 7}.Panicf(f, v...)
		return nil
	}
	gone := fmt.Errorf("group 7: %w: entry 5 is missing on the disk", store.ErrDamaged)
	if err, ok := panicked("unexpected error when getting unapplied entries (%v)", gone).(error); !ok || !errors.Is(err, gone) {
		t.Errorf("an entry that is gone ends the loop with %v", err)
	}
	if err, ok := panicked("tocommit(%d) is out of range [lastIndex(%d)]. Was the raft log corrupted, truncated, or lost?", 9, 5).(error); !ok || !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a disk that was put back ends the loop with %v", err)
	}
	if text, ok := panicked("%x stepped empty MsgProp", 7).(string); !ok || text != "raft group 7: 7 stepped empty MsgProp" {
		t.Errorf("a defect ends the loop with %q", text)
	}
}

// TestShare divides what all logs may keep together: the longest give most, and
// no log that is short enough gives anything.
func TestShare(t *testing.T) {
	for _, test := range []struct {
		sizes       []int64
		each, total int64
		want        int64
	}{
		{nil, 64, 1000, 64},
		{[]int64{10, 20, 30}, 64, 1000, 64},
		{[]int64{100, 10, 100}, 64, 1000, 64},
		{[]int64{100, 10, 100}, 200, 110, 50},
		{[]int64{100, 100, 100, 100}, 200, 100, 25},
		{[]int64{0, 0, 90}, 200, 50, 50},
		{[]int64{40, 60, 100}, 80, 150, 55},
	} {
		sizes := append([]int64(nil), test.sizes...)
		got := share(sizes, test.each, test.total)
		if got != test.want {
			t.Errorf("of logs of %v, each may keep %d: want %d", test.sizes, got, test.want)
		}
		sum := int64(0)
		for _, s := range test.sizes {
			sum += min(s, got)
		}
		if sum > test.total {
			t.Errorf("of logs of %v, %d bytes stay, and %d may", test.sizes, sum, test.total)
		}
	}
	if got := share([]int64{1}, math.MaxInt64, math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("without bounds: %d", got)
	}
}

// TestVitalGroupsAreNotPushedBack: leases are written while the disk is slow.
func TestVitalGroupsAreNotPushedBack(t *testing.T) {
	s := &Stepper{groups: map[uint64]*group{1: {vital: true}, 2: {}}}
	for _, slow := range []bool{false, true} {
		s.Slow(slow)
		if s.pushesBack(1) || s.pushesBack(2) != slow {
			t.Errorf("slow is %t: a vital group pushes back: %t, another: %t", slow, s.pushesBack(1), s.pushesBack(2))
		}
	}
}
