package raftlog_test

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/raftlog"
	"tidal/node/internal/store"
)

func (d *disk) apply(index, term uint64) {
	d.Helper()
	b := d.db.NewBatch()
	d.check(d.log.Apply(b, raftlog.Applied{Index: index, Term: term, Conf: &pb.ConfState{Voters: []uint64{1, 2, 3}}}))
	d.check(b.Commit(true))
}

func (d *disk) cut(index uint64) {
	d.Helper()
	b := d.db.NewBatch()
	d.check(d.log.Cut(b, index))
	d.check(b.Commit(true))
}

// entries counts what the disk has of a log.
func (d *disk) entries() int {
	d.Helper()
	n := 0
	d.check(d.db.Scan(store.GroupKey(group, store.SubEntry), store.GroupEnd(group, store.SubEntry), func(_, _ []byte) error {
		n++
		return nil
	}))
	return n
}

// TestCut cuts a log, with its entries in memory and without: what is cut is gone
// from the disk, the rest and the term before it are there, also after a restart.
func TestCut(t *testing.T) {
	for _, limit := range []int{0, 1 << 20} {
		d := newDisk(t, limit)
		d.append(run(1, 10, 2)...)
		d.apply(8, 2)
		b := d.db.NewBatch()
		if err := d.log.Cut(b, 9); err == nil {
			t.Error("it is cut above what is applied")
		}
		d.check(b.Close())
		look := func(when string, start uint64) {
			t.Helper()
			if n := d.entries(); n != int(10-start) {
				t.Errorf("%s the disk has %d entries behind %d", when, n, start)
			}
			first, _ := d.log.FirstIndex()
			last, _ := d.log.LastIndex()
			if first != start+1 || last != 10 || d.log.Start() != start {
				t.Errorf("%s it has [%d, %d]", when, first, last)
			}
			if term, err := d.log.Term(start); term != 2 || err != nil {
				t.Errorf("%s the term before it is %d, %v", when, term, err)
			}
			if _, err := d.log.Term(start - 1); !errors.Is(err, raft.ErrCompacted) {
				t.Errorf("%s the term of an entry that is cut: %v", when, err)
			}
			if _, err := d.log.Entries(start, 11, 1<<20); !errors.Is(err, raft.ErrCompacted) {
				t.Errorf("%s an entry that is cut: %v", when, err)
			}
			got, err := d.log.Entries(start+1, 11, 1<<20)
			if err != nil || !same(got, run(start+1, 10, 2)) {
				t.Errorf("%s it has %v, %v", when, got, err)
			}
		}
		d.cut(5)
		look("after a cut", 5)
		d.cut(3)
		look("after a cut of what is cut", 5)
		d.reopen(limit)
		look("after a restart", 5)
		d.cut(8)
		look("after another cut", 8)
		d.append(run(10, 10, 2)...)
		d.apply(10, 2)
		d.cut(10)
		if n, size := d.entries(), d.log.Size(); n != 0 || size != 0 {
			t.Errorf("all is cut, and %d entries of %d bytes are left", n, size)
		}
		d.reopen(limit)
		if last, _ := d.log.LastIndex(); last != 10 || d.log.Size() != 0 {
			t.Errorf("an empty log ends at %d and takes %d bytes", last, d.log.Size())
		}
		if term, err := d.log.Term(10); term != 2 || err != nil {
			t.Errorf("its last term is %d, %v", term, err)
		}
		d.append(run(11, 12, 3)...)
		if got, err := d.log.Entries(11, 13, 1<<20); err != nil || !same(got, run(11, 12, 3)) {
			t.Errorf("after an append it has %v, %v", got, err)
		}
	}
}

// TestCutAboveApplied is the defect: a log that begins behind what is applied
// must not open.
func TestCutAboveApplied(t *testing.T) {
	d := newDisk(t, 0)
	d.append(run(1, 10, 2)...)
	d.apply(8, 2)
	b := d.db.NewBatch()
	d.check(d.log.CutUnchecked(b, 9))
	d.check(b.Commit(true))
	if _, err := raftlog.Open(d.db, group, raftlog.NewCache(0)); err == nil {
		t.Error("it opens")
	}
}

// TestSize holds that a log knows what it takes and where, within a step, through
// appends, overwritten suffixes, cuts and restarts.
func TestSize(t *testing.T) {
	const each, slack = 10 << 10, 64<<10 + 10<<10
	d := newDisk(t, 0)
	value := strings.Repeat("x", each)
	add := func(from, to, term uint64) {
		t.Helper()
		for i := from; i <= to; i++ {
			d.append(entry(i, term, value))
		}
	}
	look := func(when string) {
		t.Helper()
		want := int64(d.log.Last()-d.log.Start()) * each
		if got := d.log.Size(); got < want-slack || got > want+slack {
			t.Errorf("%s it says %d bytes, and has %d", when, got, want)
		}
		for _, keep := range []int64{0, 100 << 10, 500 << 10, 10 << 20} {
			at := d.log.Behind(keep)
			left := int64(d.log.Last()-at) * each
			if left > keep+slack || at > d.log.Start() && left < keep-2*slack {
				t.Errorf("%s it keeps %d bytes behind entry %d, of %d that it may", when, left, at, keep)
			}
		}
	}
	add(1, 100, 1)
	look("after appends")
	add(61, 80, 2)
	look("after a shorter suffix took the place of another")
	d.apply(80, 2)
	d.cut(33)
	look("after a cut")
	d.reopen(0)
	look("after a restart")
	add(81, 120, 2)
	look("after more appends")
	d.cut(80)
	look("after another cut")
}

// TestRestore opens what Records of a snapshot leave.
func TestRestore(t *testing.T) {
	d := newDisk(t, 1<<20)
	d.append(run(1, 10, 2)...)
	d.apply(4, 2)
	a := raftlog.Applied{Index: 50, Term: 6, Conf: &pb.ConfState{Voters: []uint64{1, 3}}}
	h := raftlog.HardState{Term: 7, Vote: 2, Commit: 50}
	records, err := raftlog.Records(group, 3, a, h)
	d.check(err)
	b := d.db.NewBatch()
	b.DeleteRange(store.GroupRange(group))
	for _, r := range records {
		b.Set(r.Key, r.Value)
	}
	d.check(b.Commit(true))
	d.log.Restore(a, h)
	if d.cache.Used() != 0 {
		t.Errorf("%d bytes of entries that are gone are in memory", d.cache.Used())
	}
	for _, when := range []string{"at once", "after a restart"} {
		last, _ := d.log.LastIndex()
		got := d.log.Applied()
		if last != 50 || d.log.Start() != 50 || d.log.Hard() != h || d.log.Replica() != 3 ||
			got.Index != 50 || got.Term != 6 || len(got.Conf.GetVoters()) != 2 || d.log.Size() != 0 {
			t.Errorf("%s: log (%d, %d], hard state %+v, applied %+v", when, d.log.Start(), last, d.log.Hard(), got)
		}
		if term, terr := d.log.Term(50); term != 6 || terr != nil {
			t.Errorf("%s: term %d, %v", when, term, terr)
		}
		d.reopen(1 << 20)
	}
	s, err := d.log.Snapshot()
	d.check(err)
	if m := s.GetMetadata(); m.GetIndex() != 50 || m.GetTerm() != 6 || len(m.GetConfState().GetVoters()) != 2 {
		t.Errorf("its snapshot is %v", s)
	}
}
