package raftlog_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tidal/node/internal/raftlog"
	"tidal/node/internal/store"
)

const group = 7

// disk is a database with one replica, whose log is opened with a cache of limit.
type disk struct {
	*testing.T
	fs    *vfs.MemFS
	db    *store.DB
	cache *raftlog.Cache
	log   *raftlog.Log
}

func newDisk(t *testing.T, limit int) *disk {
	t.Helper()
	d := &disk{T: t, fs: vfs.NewMem()}
	d.openDB()
	b := d.db.NewBatch()
	d.check(raftlog.Create(b, group, 3, []uint64{1, 2, 3}))
	d.check(b.Commit(true))
	d.open(limit)
	t.Cleanup(func() { d.check(d.db.Close()) })
	return d
}

func (d *disk) check(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *disk) openDB() {
	var err error
	d.db, err = store.Open("db", store.Options{FS: d.fs})
	d.check(err)
}

func (d *disk) open(limit int) {
	d.Helper()
	d.cache = raftlog.NewCache(limit)
	var err error
	d.log, err = raftlog.Open(d.db, group, d.cache)
	d.check(err)
}

// reopen closes the database and opens it again.
func (d *disk) reopen(limit int) {
	d.Helper()
	d.check(d.db.Close())
	d.openDB()
	d.open(limit)
}

func (d *disk) append(entries ...*pb.Entry) {
	d.Helper()
	b := d.db.NewBatch()
	d.check(d.log.Append(b, entries))
	d.check(b.Commit(true))
}

func entry(index, term uint64, data string) *pb.Entry {
	e := &pb.Entry{Type: pb.EntryNormal.Enum(), Index: &index, Term: &term}
	if data != "" {
		e.Data = []byte(data)
	}
	return e
}

// run returns entries first to last of one term.
func run(first, last, term uint64) []*pb.Entry {
	var out []*pb.Entry
	for i := first; i <= last; i++ {
		out = append(out, entry(i, term, fmt.Sprintf("data of %d in %d", i, term)))
	}
	return out
}

func same(a, b []*pb.Entry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !proto.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func TestOpenWithoutAReplica(t *testing.T) {
	d := newDisk(t, 0)
	if _, err := raftlog.Open(d.db, group+1, d.cache); !errors.Is(err, raftlog.ErrNoReplica) {
		t.Errorf("a group that was never created: %v", err)
	}
}

func TestNewReplica(t *testing.T) {
	d := newDisk(t, 1<<20)
	hard, conf, err := d.log.InitialState()
	if err != nil || !raft.IsEmptyHardState(hard) || fmt.Sprint(conf.GetVoters()) != "[1 2 3]" {
		t.Errorf("first state %v, %v, %v", hard, conf, err)
	}
	first, _ := d.log.FirstIndex()
	last, _ := d.log.LastIndex()
	if first != 1 || last != 0 || d.log.Replica() != 3 {
		t.Errorf("first %d, last %d, replica %d", first, last, d.log.Replica())
	}
	if term, err := d.log.Term(0); term != 0 || err != nil {
		t.Errorf("term of the entry before the first: %d, %v", term, err)
	}
	if _, err := d.log.Snapshot(); !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		t.Errorf("snapshot: %v: raft panics on another error", err)
	}
}

// TestStorage holds raft.Storage's contract, with the log in memory, partly in
// memory, and on the disk alone.
func TestStorage(t *testing.T) {
	for name, limit := range map[string]int{"memory": 1 << 20, "both": 400, "disk": 0} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t, limit)
			d.append(run(1, 5, 1)...)
			d.append(run(6, 10, 2)...)
			if _, err := d.log.Entries(0, 3, math.MaxUint64); !errors.Is(err, raft.ErrCompacted) {
				t.Errorf("entries from the one before the first: %v", err)
			}
			if _, err := d.log.Entries(9, 12, math.MaxUint64); !errors.Is(err, raft.ErrUnavailable) {
				t.Errorf("entries past the last: %v", err)
			}
			if _, err := d.log.Term(11); !errors.Is(err, raft.ErrUnavailable) {
				t.Errorf("the term past the last: %v", err)
			}
			for i := uint64(1); i <= 10; i++ {
				if term, err := d.log.Term(i); term != 1+(i-1)/5 || err != nil {
					t.Errorf("term of %d: %d, %v", i, term, err)
				}
			}
			all := append(run(1, 5, 1), run(6, 10, 2)...)
			for lo := uint64(1); lo <= 10; lo++ {
				for hi := lo + 1; hi <= 11; hi++ {
					got, err := d.log.Entries(lo, hi, math.MaxUint64)
					if err != nil || !same(got, all[lo-1:hi-1]) {
						t.Fatalf("[%d, %d): %v, %v", lo, hi, got, err)
					}
					_ = append(got, entry(99, 99, "the caller may append"))
				}
			}
			if got, err := d.log.Entries(1, 11, math.MaxUint64); err != nil || !same(got, all) {
				t.Errorf("after callers appended to what they got: %v, %v", got, err)
			}
			one, err := d.log.Entries(2, 8, 0)
			if err != nil || !same(one, all[1:2]) {
				t.Errorf("at least one entry: %v, %v", one, err)
			}
			two := uint64(proto.Size(all[1]) + proto.Size(all[2]))
			if got, err := d.log.Entries(2, 8, two); err != nil || !same(got, all[1:3]) {
				t.Errorf("as much as fits: %v, %v", got, err)
			}
			if got, err := d.log.Entries(2, 8, two-1); err != nil || !same(got, all[1:2]) {
				t.Errorf("one byte less than fits: %v, %v", got, err)
			}
		})
	}
}

// TestSuffixIsOverwritten replaces the end of a log by a shorter one of a later
// term, and opens the disk again: nothing of the old end may come back.
func TestSuffixIsOverwritten(t *testing.T) {
	for name, limit := range map[string]int{"memory": 1 << 20, "both": 400, "disk": 0} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t, limit)
			d.append(run(1, 10, 1)...)
			held, err := d.log.Entries(1, 11, math.MaxUint64)
			d.check(err)
			d.append(run(4, 5, 2)...)
			want := append(run(1, 3, 1), run(4, 5, 2)...)
			look := func() {
				t.Helper()
				if last, _ := d.log.LastIndex(); last != 5 {
					t.Fatalf("the log ends at %d", last)
				}
				if got, err := d.log.Entries(1, 6, math.MaxUint64); err != nil || !same(got, want) {
					t.Errorf("%v, %v", got, err)
				}
				if term, err := d.log.Term(4); term != 2 || err != nil {
					t.Errorf("term of 4: %d, %v", term, err)
				}
				if _, err := d.log.Entries(5, 7, math.MaxUint64); !errors.Is(err, raft.ErrUnavailable) {
					t.Errorf("an entry that was overwritten: %v", err)
				}
			}
			look()
			if !same(held, run(1, 10, 1)) {
				t.Error("what a reader held has changed")
			}
			d.reopen(limit)
			look()
			d.append(run(6, 8, 3)...)
			want = append(want, run(6, 8, 3)...)
			if got, err := d.log.Entries(1, 9, math.MaxUint64); err != nil || !same(got, want) {
				t.Errorf("after another append: %v, %v", got, err)
			}
		})
	}
}

func TestAppendRefuses(t *testing.T) {
	d := newDisk(t, 1<<20)
	d.append(run(1, 5, 1)...)
	b := d.db.NewBatch()
	d.check(d.log.Apply(b, raftlog.Applied{Index: 3, Term: 1, Conf: &pb.ConfState{Voters: []uint64{1}}}))
	d.check(b.Commit(true))
	b = d.db.NewBatch()
	if err := d.log.Append(b, run(7, 8, 1)); err == nil || !strings.Contains(err.Error(), "append at 7 to a log of 5 entries, 3 applied") {
		t.Errorf("a gap: %v", err)
	}
	if err := d.log.Append(b, run(3, 8, 2)); err == nil || !strings.Contains(err.Error(), "append at 3 to a log of 5 entries, 3 applied") {
		t.Errorf("over what is applied: %v", err)
	}
	if err := d.log.Append(b, nil); err != nil || !b.Empty() {
		t.Errorf("nothing: %v", err)
	}
	d.check(b.Close())
	if last, _ := d.log.LastIndex(); last != 5 {
		t.Errorf("what was refused moved the end to %d", last)
	}
}

// TestApplyMovesTheStoredCommit opens the disk after applies alone: the commit
// that is stored is never behind what is applied, and the newest term and vote
// are kept with it.
func TestApplyMovesTheStoredCommit(t *testing.T) {
	d := newDisk(t, 1<<20)
	d.append(run(1, 9, 4)...)
	d.log.SetHard(raftlog.HardState{Term: 6, Vote: 2, Commit: 3})
	b := d.db.NewBatch()
	d.log.WriteHard(b)
	d.check(b.Commit(true))
	apply := func(index uint64) {
		t.Helper()
		b := d.db.NewBatch()
		d.check(d.log.Apply(b, raftlog.Applied{Index: index, Term: 4, Conf: &pb.ConfState{Voters: []uint64{1, 2, 9}}}))
		d.check(b.Commit(true))
	}
	apply(8)
	d.reopen(0)
	if h := d.log.Hard(); h != (raftlog.HardState{Term: 6, Vote: 2, Commit: 8}) {
		t.Errorf("stored hard state %+v", h)
	}
	if a := d.log.Applied(); a.Index != 8 || a.Term != 4 || fmt.Sprint(a.Conf.GetVoters()) != "[1 2 9]" {
		t.Errorf("stored applied state %+v", a)
	}
	// A commit that is further than what is applied does not go back.
	d.log.SetHard(raftlog.HardState{Term: 6, Vote: 2, Commit: 9})
	apply(8)
	d.reopen(0)
	if h := d.log.Hard(); h.Commit != 9 {
		t.Errorf("commit 9 became %d", h.Commit)
	}
}

// TestApplyWithoutCommit holds that the defect is one.
func TestApplyWithoutCommit(t *testing.T) {
	d := newDisk(t, 0)
	d.append(run(1, 9, 4)...)
	b := d.db.NewBatch()
	d.check(d.log.ApplyWithoutCommit(b, raftlog.Applied{Index: 8, Term: 4, Conf: &pb.ConfState{}}))
	d.check(b.Commit(true))
	d.reopen(0)
	if h := d.log.Hard(); h.Commit != 0 {
		t.Errorf("the commit moved to %d", h.Commit)
	}
}

// TestDamagedDisk takes or breaks one key of a replica at a time.
func TestDamagedDisk(t *testing.T) {
	for _, test := range []struct {
		name  string
		key   []byte
		value []byte // nil: the key is deleted
		open  string // the error of Open; "": of Entries
		read  string
	}{
		{name: "applied gone", key: store.GroupKey(group, store.SubApplied), open: "the applied state is missing"},
		{name: "start gone", key: store.GroupKey(group, store.SubStart), open: "the start of the log is missing"},
		{name: "replica broken", key: store.GroupKey(group, store.SubReplica), value: []byte{0x80}, open: "replica id"},
		{name: "hard state broken", key: store.GroupKey(group, store.SubHard), value: []byte{1, 2}, open: "stored commit"},
		{name: "configuration broken", key: store.GroupKey(group, store.SubApplied), value: []byte{1, 1, 0xff}, open: "stored configuration"},
		{name: "last entry gone", key: store.EntryKey(group, 5), open: "the log ends at 4, behind commit 5 or applied 0"},
		{name: "entry gone", key: store.EntryKey(group, 3), read: "entry 3 is missing on the disk"},
		{name: "first entry gone", key: store.EntryKey(group, 1), read: "entry 1 is missing on the disk"},
		{name: "entry broken", key: store.EntryKey(group, 3), value: []byte{0}, read: "entry 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDisk(t, 0)
			d.append(run(1, 5, 1)...)
			d.log.SetHard(raftlog.HardState{Term: 1, Vote: 1, Commit: 5})
			b := d.db.NewBatch()
			d.log.WriteHard(b)
			if test.value == nil {
				b.Delete(test.key)
			} else {
				b.Set(test.key, test.value)
			}
			d.check(b.Commit(true))
			l, err := raftlog.Open(d.db, group, d.cache)
			if test.open != "" {
				if err == nil || !strings.Contains(err.Error(), test.open) || !strings.Contains(err.Error(), "group 7") {
					t.Errorf("opened with %v, want %q", err, test.open)
				}
				return
			}
			d.check(err)
			if _, err := l.Entries(1, 6, math.MaxUint64); err == nil || !strings.Contains(err.Error(), test.read) {
				t.Errorf("read with %v, want %q", err, test.read)
			}
			index := uint64(3)
			if strings.HasPrefix(test.name, "first") {
				index = 1
			}
			if _, err := l.Term(index); err == nil {
				t.Errorf("the term of entry %d was read", index)
			}
		})
	}
}

// TestCache holds the bound, with two logs on one cache, and that closing gives
// everything back.
func TestCache(t *testing.T) {
	d := newDisk(t, 10_000)
	b := d.db.NewBatch()
	d.check(raftlog.Create(b, group+1, 1, []uint64{1}))
	d.check(b.Commit(true))
	other, err := raftlog.Open(d.db, group+1, d.cache)
	d.check(err)
	for i := uint64(1); i <= 200; i += 10 {
		d.append(run(i, i+9, 1)...)
		b := d.db.NewBatch()
		d.check(other.Append(b, run(i, i+9, 1)))
		d.check(b.Commit(false))
		if used := d.cache.Used(); used > 10_000 || used <= 0 {
			t.Fatalf("%d bytes are held: the bound is 10,000", used)
		}
	}
	d.append(run(50, 60, 2)...)
	if used := d.cache.Used(); used > 10_000 || used < 0 {
		t.Errorf("after an overwrite %d bytes are held", used)
	}
	d.log.Close()
	other.Close()
	if used := d.cache.Used(); used != 0 {
		t.Errorf("%d bytes are held by closed logs", used)
	}
	if got, err := d.log.Entries(1, 61, math.MaxUint64); err != nil || len(got) != 60 {
		t.Errorf("a log without its tail: %d entries, %v", len(got), err)
	}
}

// TestCacheChangesNoAnswer does the same to logs with different caches.
func TestCacheChangesNoAnswer(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		disks := []*disk{newDisk(t, 1<<20), newDisk(t, 900), newDisk(t, 0)}
		last, term := uint64(0), uint64(1)
		for range 40 {
			first := last + 1
			if rnd.IntN(3) == 0 && last > 0 {
				first, term = 1+rnd.Uint64N(last), term+1
			}
			last = first + rnd.Uint64N(5)
			for _, d := range disks {
				d.append(run(first, last, term)...)
			}
			lo := 1 + rnd.Uint64N(last)
			hi, limit := lo+1+rnd.Uint64N(last-lo+1), rnd.Uint64N(400)
			want, err := disks[2].log.Entries(lo, hi, limit)
			for _, d := range disks[:2] {
				if got, e := d.log.Entries(lo, hi, limit); !same(got, want) || e != nil || err != nil {
					t.Fatalf("seed %d: [%d, %d) of at most %d bytes: %d entries from the cache (%v), %d from the disk (%v)",
						seed, lo, hi, limit, len(got), e, len(want), err)
				}
				for i := uint64(0); i <= last; i++ {
					a, ea := d.log.Term(i)
					b, eb := disks[2].log.Term(i)
					if a != b || ea != nil || eb != nil {
						t.Fatalf("seed %d: term of %d: %d (%v) from the cache, %d (%v) from the disk", seed, i, a, ea, b, eb)
					}
				}
			}
		}
	}
}

// TestReopen finds everything again.
func TestReopen(t *testing.T) {
	d := newDisk(t, 1<<20)
	d.append(run(1, 20, 3)...)
	d.log.SetHard(raftlog.HardState{Term: 5, Vote: 2, Commit: 12})
	b := d.db.NewBatch()
	d.check(d.log.Apply(b, raftlog.Applied{Index: 12, Term: 3, Conf: &pb.ConfState{Voters: []uint64{3}, Learners: []uint64{4}}}))
	d.check(b.Commit(true))
	d.reopen(1 << 20)
	last, _ := d.log.LastIndex()
	if d.log.Replica() != 3 || last != 20 || d.log.Hard() != (raftlog.HardState{Term: 5, Vote: 2, Commit: 12}) {
		t.Errorf("replica %d, last %d, hard state %+v", d.log.Replica(), last, d.log.Hard())
	}
	if a := d.log.Applied(); a.Index != 12 || fmt.Sprint(a.Conf.GetVoters(), a.Conf.GetLearners()) != "[3] [4]" {
		t.Errorf("applied %+v", a)
	}
	if got, err := d.log.Entries(1, 21, math.MaxUint64); err != nil || !same(got, run(1, 20, 3)) {
		t.Errorf("%d entries, %v", len(got), err)
	}
	if d.cache.Used() != 0 {
		t.Errorf("what was read from the disk takes %d bytes of the cache", d.cache.Used())
	}
}
