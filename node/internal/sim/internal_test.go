package sim

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// put returns a write and the entry of the log that holds it.
func put(index uint64, id byte, key, value string) (*wire.Command, rafthost.Entry) {
	c := &wire.Command{Op: api.OpPut, ID: api.RequestID{id}, Key: key, Value: []byte(value)}
	return c, rafthost.Entry{Index: index, Term: 1, Data: wire.AppendCommand(nil, c)}
}

// ifMatch is entry 5, which asks for a version of a row.
func ifMatch(version uint64) rafthost.Entry {
	c, e := put(5, 9, "k", "nine")
	c.IfMatch = []api.Version{{Table: 2, Index: version}}
	e.Data = wire.AppendCommand(nil, c)
	return e
}

// planted is a history of one table on three replicas: raft's own entry, the
// writes 2 and 3 of one row, and write 2 once more.
func planted() *history {
	h := newHistory([]uint64{2})
	for replica := uint64(1); replica <= 3; replica++ {
		at := replicaOf{2, replica}
		_, two := put(2, 2, "k", "two")
		_, three := put(3, 3, "k", "three")
		again := two
		again.Index = 4
		h.apply(at, rafthost.Entry{Index: 1, Term: 1}, nil, 0)
		h.apply(at, two, &table.Answer{Version: 2}, 0)
		h.apply(at, three, &table.Answer{Version: 3}, 0)
		h.apply(at, again, &table.Answer{Version: 2}, 0)
	}
	h.led(termOf{2, 1}, 1)
	h.voted(termOf{2, 1}, 2, 1)
	h.synced(replicaOf{2, 1}, durable{1, 4, 4})
	two, _ := put(2, 2, "k", "two")
	h.ack(2, two, 0, 2)
	three, _ := put(3, 3, "k", "three")
	h.ack(2, three, 2, 3)
	return h
}

// TestHistory breaks each promise once: a check that cannot fail proves nothing.
func TestHistory(t *testing.T) {
	at := replicaOf{2, 1}
	two, entry := put(2, 2, "k", "two")
	row := table.Row{Version: 3, Value: []byte("three")}
	rows := map[string]table.Row{"k": row}
	for _, c := range []struct {
		name string
		do   func(h *history)
		want string // of the finding; "": there is none
	}{
		{"as it should be", func(h *history) {
			h.ack(2, two, 0, 2)
			h.read(2, 3, []string{"k"}, rows)
			h.led(termOf{2, 1}, 1)
			h.restarted(at, durable{1, 4, 4})
			h.log(at, []uint64{1, 1, 2})
			h.refuse(2, [16]byte{9})
			h.rest(at, tableAt{applied: 4}, rows)
			h.rest(replicaOf{2, 2}, tableAt{applied: 4}, rows)
		}, ""},
		{"two leaders", func(h *history) { h.led(termOf{2, 1}, 3) }, "two leaders"},
		{"two votes", func(h *history) { h.voted(termOf{2, 1}, 2, 3) }, "voted twice"},
		{"a vote of the leader", func(h *history) { h.voted(termOf{2, 1}, 1, 3) }, "voted twice"},
		{"two entries of one index", func(h *history) {
			entry.Term = 2
			h.apply(at, entry, &table.Answer{Version: 2}, 0)
		}, "not the one"},
		{"two times of one entry", func(h *history) {
			_, e := put(2, 2, "k", "two")
			e.Elapsed = time.Millisecond
			h.apply(at, e, &table.Answer{Version: 2}, 0)
		}, "not the one"},
		{"an entry left out", func(h *history) { h.apply(at, rafthost.Entry{Index: 6, Term: 1}, nil, 0) }, "nobody applied"},
		{"a write done twice", func(h *history) {
			_, e := put(5, 2, "k", "two")
			h.apply(at, e, &table.Answer{Version: 5}, 0)
		}, "was done by entry 2"},
		{"another answer elsewhere", func(h *history) {
			_, e := put(3, 3, "k", "three")
			h.apply(at, e, &table.Answer{Version: 4}, 0)
		}, "another answered"},
		{"a condition that does not hold", func(h *history) {
			h.apply(at, ifMatch(2), &table.Answer{Version: 5}, 0)
		}, "do not hold: the row's version is 3"},
		{"a condition that holds", func(h *history) {
			h.apply(at, ifMatch(3), &table.Answer{Code: api.CodePreconditionFailed, Version: 3}, 0)
		}, "conditions hold"},
		{"a failed condition with another version", func(h *history) {
			h.apply(at, ifMatch(2), &table.Answer{Code: api.CodePreconditionFailed, Version: 2}, 0)
		}, "do not hold: the row's version is 3"},
		{"a failed condition that is told otherwise", func(h *history) {
			h.apply(at, ifMatch(2), &table.Answer{Code: api.CodePreconditionFailed, Version: 3}, 0)
			h.failed(2, [16]byte{9}, 3)
			h.failed(2, [16]byte{2}, 3)
		}, "which entry 2 does not say"},
		{"forgotten early", func(h *history) {
			_, e := put(5, 2, "k", "two")
			h.asked(2, two, time.Second)
			h.apply(at, e, &table.Answer{Code: api.CodeBehind, Version: 5}, time.Second+table.KeepMade)
		}, "is forgotten 30s after it began"},
		{"forgotten in time", func(h *history) {
			_, e := put(5, 2, "k", "two")
			h.asked(2, two, time.Second)
			h.apply(at, e, &table.Answer{Code: api.CodeBehind, Version: 5}, time.Second+table.KeepMade+time.Millisecond)
		}, ""},
		{"a refused write that is done", func(h *history) {
			_, e := put(5, 9, "k", "nine")
			h.refuse(2, [16]byte{9})
			h.apply(at, e, &table.Answer{Version: 5}, 0)
		}, "became entry 5"},
		{"a done write that is refused", func(h *history) { h.refuse(2, [16]byte{2}) }, "is entry 2"},
		{"two answers", func(h *history) { h.ack(2, two, 0, 4) }, "answered twice"},
		{"an answer to nothing", func(h *history) {
			c, _ := put(5, 9, "k", "nine")
			h.ack(2, c, 0, 5)
		}, "does not hold it"},
		{"a write before one that was done", func(h *history) { h.ack(2, two, 3, 2) }, "before it was sent"},
		{"an old read", func(h *history) {
			h.read(2, 3, []string{"k"}, map[string]table.Row{"k": {Version: 2, Value: []byte("two")}})
		}, "was there before"},
		{"a read of nothing", func(h *history) { h.read(2, 3, []string{"k"}, nil) }, "was there before"},
		{"a read of what nobody wrote", func(h *history) {
			h.read(2, 3, []string{"k"}, map[string]table.Row{"k": {Version: 3, Value: []byte("two")}})
		}, "not what that entry wrote"},
		{"a lost term", func(h *history) { h.restarted(at, durable{0, 4, 4}) }, "came back"},
		{"a lost commit", func(h *history) { h.restarted(at, durable{1, 3, 4}) }, "came back"},
		{"a lost row", func(h *history) { h.restarted(at, durable{1, 4, 3}) }, "came back"},
		{"a stale tail", func(h *history) { h.log(at, []uint64{1, 2, 1}) }, "behind one of term"},
		{"a replica behind", func(h *history) { h.rest(at, tableAt{applied: 3}, rows) }, "others applied entry 4"},
		{"another table", func(h *history) {
			h.rest(at, tableAt{applied: 4}, rows)
			h.rest(replicaOf{2, 2}, tableAt{applied: 4, hash: [32]byte{1}}, rows)
		}, "different tables"},
		{"a row lost", func(h *history) { h.rest(at, tableAt{applied: 4}, nil) }, "the last write to it"},
		{"a row damaged", func(h *history) {
			h.rest(at, tableAt{applied: 4}, map[string]table.Row{"k": {Version: 3, Value: []byte("thr")}})
		}, "not what that entry wrote"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := planted()
			c.do(h)
			got := strings.Join(h.findings, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// TestBatchHistory is TestHistory behind a batch, entry 5, that writes two rows, one of
// them twice, and deletes one, and a write of one of them, entry 6.
func TestBatchHistory(t *testing.T) {
	at := replicaOf{2, 1}
	c := &wire.Command{Op: api.OpBatch, ID: api.RequestID{5}, Value: wire.AppendChanges(nil, []api.Change{
		{Key: "a", Value: []byte("one")}, {Key: "b", Value: []byte("five")}, {Key: "k", Delete: true}, {Key: "a", Value: []byte("five")},
	})}
	entry := rafthost.Entry{Index: 5, Term: 1, Data: wire.AppendCommand(nil, c)}
	five := table.Row{Version: 5, Value: []byte("five")}
	six := table.Row{Version: 6, Value: []byte("six")}
	all := []string{"a", "b", "k"}
	for _, test := range []struct {
		name string
		do   func(h *history)
		want string
	}{
		{"as it should be", func(h *history) {
			h.read(2, 4, all, map[string]table.Row{"k": {Version: 3, Value: []byte("three")}})
			h.ack(2, c, 4, 5)
			h.read(2, 5, all, map[string]table.Row{"a": five, "b": five})
			h.read(2, 5, []string{"b"}, map[string]table.Row{"b": five})
			h.read(2, 5, all, map[string]table.Row{"a": five, "b": six})
			h.shows(at, 4, map[string]table.Row{"k": {Version: 3, Value: []byte("three")}})
			h.shows(at, 5, map[string]table.Row{"a": five, "b": five})
			h.shows(at, 6, map[string]table.Row{"a": five, "b": six})
		}, ""},
		{"a part is read", func(h *history) {
			h.read(2, 4, all, map[string]table.Row{"a": five})
		}, "no one entry"},
		{"a deleted row is read", func(h *history) {
			h.read(2, 4, all, map[string]table.Row{"a": five, "b": five, "k": {Version: 3, Value: []byte("three")}})
		}, "no one entry"},
		{"a deleted row is read later", func(h *history) {
			h.ack(2, c, 4, 5)
			h.read(2, h.newest(2), []string{"k"}, map[string]table.Row{"k": {Version: 3, Value: []byte("three")}})
		}, "no one entry"},
		{"a read that another read is ahead of", func(h *history) {
			h.read(2, 4, []string{"b"}, map[string]table.Row{"b": six})
			h.read(2, h.newest(2), all, map[string]table.Row{"a": five, "b": five})
		}, "no one entry"},
		{"a change that another one of the row is behind", func(h *history) {
			h.read(2, 4, []string{"a"}, map[string]table.Row{"a": {Version: 5, Value: []byte("one")}})
		}, "not what that entry wrote"},
		{"a part is on the disk", func(h *history) { h.shows(at, 5, map[string]table.Row{"b": five}) }, `version 0 of row "a"`},
		{"a deleted row is on the disk", func(h *history) {
			h.shows(at, 5, map[string]table.Row{"a": five, "b": five, "k": {Version: 3, Value: []byte("three")}})
		}, "the last write to it gave version 0"},
		{"it is on the disk too soon", func(h *history) {
			h.shows(at, 4, map[string]table.Row{"a": five, "k": {Version: 3, Value: []byte("three")}})
		}, `version 5 of row "a"`},
		{"it is done again, and answered as before", func(h *history) {
			again := entry
			again.Index = 7
			h.apply(at, again, &table.Answer{Version: 5}, 0)
			h.shows(at, 7, map[string]table.Row{"a": {Version: 7, Value: []byte("five")}, "b": {Version: 7, Value: []byte("five")}})
		}, "at version 7, which is not what that entry wrote"},
		{"it is refused", func(h *history) { h.refuse(2, c.ID) }, "refused as not done, and is entry 5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := planted()
			h.apply(at, entry, &table.Answer{Version: 5}, 0)
			_, e := put(6, 6, "b", "six")
			h.apply(at, e, &table.Answer{Version: 6}, 0)
			test.do(h)
			got := strings.Join(h.findings, "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

// TestReshapingHistory is TestHistory for runs in which entries may be changes of the
// configuration, which no machine sees.
func TestReshapingHistory(t *testing.T) {
	at, other := replicaOf{2, 1}, replicaOf{2, 2}
	for _, c := range []struct {
		name string
		do   func(h *history)
		want string
	}{
		{"two changes", func(h *history) {
			h.between(at, 5, 7)
			h.between(other, 5, 7)
			h.conf(at, 6, "x")
			h.conf(other, 6, "x")
		}, ""},
		{"changes applied in a former life", func(h *history) { h.between(at, 7, 8) }, ""},
		{"a change at the end", func(h *history) {
			h.rest(at, tableAt{applied: 5}, map[string]table.Row{"k": {Version: 3, Value: []byte("three")}})
		}, ""},
		{"a write left out", func(h *history) { h.between(at, 3, 4) }, "left out entry 3"},
		{"a write taken for a change", func(h *history) {
			h.between(at, 5, 6)
			_, e := put(5, 9, "k", "nine")
			h.apply(other, e, &table.Answer{Version: 5}, 0)
		}, "not the one"},
		{"an entry twice", func(h *history) { h.between(at, 5, 4) }, "comes next"},
		{"two configurations", func(h *history) {
			h.conf(at, 4, "x")
			h.conf(other, 4, "y")
		}, "another had x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := planted()
			h.reshapes = true
			c.do(h)
			got := strings.Join(h.findings, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// TestDisk crashes a disk in the middle of a write and before a sync.
func TestDisk(t *testing.T) {
	for _, c := range []struct {
		name  string
		point crashPoint
		want  string
	}{
		{"in a write", crashPoint{bytes: 3}, "onetwo" + "thr"},
		{"at the first byte", crashPoint{bytes: 0}, "onetwo"},
		{"behind a write", crashPoint{bytes: 5}, "onetwo" + "three"},
		{"in a write, what is not synced is lost", crashPoint{bytes: 3, synced: true}, "one"},
		{"before a sync", crashPoint{atSync: true}, "onetwo" + "three" + "four"},
		{"before a sync, what is not synced is lost", crashPoint{atSync: true, synced: true}, "one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(vfs.NewCrashableMem())
			f, err := d.Create("f", vfs.WriteCategoryUnspecified)
			check(t, err)
			dir, err := d.OpenDir("/")
			check(t, err)
			check(t, dir.Sync())
			write(t, f, "one")
			check(t, f.Sync())
			write(t, f, "two")
			d.arm(c.point)
			write(t, f, "three")
			write(t, f, "four")
			check(t, f.Sync())
			if got := read(t, d); got != "onetwothreefour" {
				t.Errorf("the disk that went on has %q", got)
			}
			image := d.image()
			if image == nil {
				t.Fatal("it did not crash")
			}
			if got := read(t, image); got != c.want {
				t.Errorf("the crash left %q, want %q", got, c.want)
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, f vfs.File, s string) {
	t.Helper()
	_, err := f.Write([]byte(s))
	check(t, err)
}

func read(t *testing.T, fs vfs.FS) string {
	t.Helper()
	f, err := fs.Open("f")
	check(t, err)
	var b bytes.Buffer
	_, err = b.ReadFrom(f)
	check(t, err)
	check(t, f.Close())
	return b.String()
}
