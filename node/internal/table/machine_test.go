package table_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

const tableID api.TableID = 2

// replica is a machine on a database of its own in memory.
type replica struct {
	tb    testing.TB
	fs    vfs.FS
	db    *store.DB
	m     *table.Machine
	index uint64

	defect table.Defect
}

func newReplica(tb testing.TB) *replica {
	tb.Helper()
	r := &replica{tb: tb, fs: vfs.NewMem()}
	r.open()
	tb.Cleanup(func() { r.check(r.db.Close()) })
	return r
}

func (r *replica) check(err error) {
	r.tb.Helper()
	if err != nil {
		r.tb.Fatal(err)
	}
}

func (r *replica) open() {
	r.tb.Helper()
	var err error
	r.db, err = store.Open("db", store.Options{FS: r.fs, CacheBytes: 1 << 20})
	r.check(err)
	r.m, err = table.Open(r.db, tableID)
	r.check(err)
	r.m.Break(r.defect)
}

// reopen closes the database and starts again from what is in it.
func (r *replica) reopen() {
	r.tb.Helper()
	r.check(r.db.Close())
	r.open()
}

func (r *replica) hash() [32]byte {
	r.tb.Helper()
	h, err := table.Hash(r.db, tableID)
	r.check(err)
	return h
}

// entry is one entry of the table's log.
type entry struct {
	elapsed time.Duration
	data    []byte
}

// apply applies entries in one batch and returns their answers.
func (r *replica) apply(entries ...entry) []*table.Answer {
	r.tb.Helper()
	b := r.db.NewBatch()
	var answers []*table.Answer
	for _, e := range entries {
		r.index++
		_, a, err := r.m.Apply(b, r.index, 1, e.elapsed, e.data)
		r.check(err)
		if a == nil {
			a = (*table.Answer)(nil)
		}
		answers = append(answers, a.(*table.Answer))
	}
	r.m.Flush(b)
	r.check(b.Commit(false))
	r.m.Committed()
	if n := r.m.Pending(); n > 0 {
		r.tb.Fatalf("%d rows are kept for batches that are committed", n)
	}
	return answers
}

func encode(c wire.Command) []byte {
	c.Hash = c.RequestHash(tableID)
	return wire.AppendCommand(nil, &c)
}

// TestMachine runs the scripts in testdata. An entry is a line:
//
//	put KEY VALUE | delete KEY | batch KEY=VALUE,-KEY,… | tick | empty
//	[id=NAME] [keyed] [born=N] [if-match=N,TABLE:N] [if-absent] [if-exists] [after=DURATION]
func TestMachine(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		r := newReplica(t)
		datadriven.RunTest(t, path, r.do)
	})
}

// TestDefects runs the scripts with a machine that is broken on purpose: one of
// them must see it.
func TestDefects(t *testing.T) {
	for name, defect := range map[string]table.Defect{
		"born not compared": table.BornNotCompared, "hash not compared": table.HashNotCompared,
		"forgotten early": table.ForgottenEarly, "answer of a failed condition not kept": table.AnswerNotKept,
		"batch unseen": table.BatchUnseen, "batch again": table.BatchAgain, "batch short": table.BatchShort,
		"value flipped": table.ValueFlipped,
	} {
		t.Run(name, func(t *testing.T) {
			seen := 0
			datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
				t.Helper()
				r := newReplica(t)
				r.defect = defect
				r.m.Break(defect)
				datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
					t.Helper()
					if r.do(t, d) != d.Expected {
						seen++
					}
					return d.Expected
				})
			})
			if seen == 0 {
				t.Error("no script sees it")
			}
		})
	}
}

// do carries out a command of a script.
func (r *replica) do(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "apply": // in one batch
		var entries []entry
		for line := range strings.Lines(d.Input) {
			entries = append(entries, parse(t, line))
		}
		first := r.index + 1
		var out strings.Builder
		for i, a := range r.apply(entries...) {
			fmt.Fprintf(&out, "%d: %s\n", first+uint64(i), say(a))
		}
		return out.String()
	case "rows":
		return rows(t, r.db)
	case "kept":
		return fmt.Sprintf("clock %s\n%s", r.m.Clock(), r.m.Dump())
	case "reopen":
		r.reopen()
		return ""
	}
	t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return ""
}

func parse(t *testing.T, line string) entry {
	t.Helper()
	words := strings.Fields(line)
	var c wire.Command
	var e entry
	switch words[0] {
	case "put":
		c.Op, c.Key, c.Value = api.OpPut, words[1], []byte(words[2])
		words = words[3:]
	case "delete":
		c.Op, c.Key = api.OpDelete, words[1]
		words = words[2:]
	case "batch":
		c.Op, c.Value = api.OpBatch, wire.AppendChanges(nil, changes(words[1]))
		words = words[2:]
	case "empty":
		return e
	case "tick":
		words = words[1:]
	}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, _ := strconv.ParseUint(value, 10, 64)
		switch name {
		case "id":
			copy(c.ID[:], value)
		case "keyed":
			c.Keyed = true
		case "born":
			c.Born = n
		case "if-match":
			c.IfMatch = tags(t, value)
		case "if-absent":
			c.IfAbsent = true
		case "if-exists":
			c.IfExists = true
		case "after":
			var err error
			if e.elapsed, err = time.ParseDuration(value); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("unknown option %q", w)
		}
	}
	if c.Op != 0 {
		e.data = encode(c)
	}
	return e
}

// changes reads a list of changes: KEY=VALUE, or -KEY.
func changes(text string) (list []api.Change) {
	for word := range strings.SplitSeq(text, ",") {
		key, value, put := strings.Cut(strings.TrimPrefix(word, "-"), "=")
		list = append(list, api.Change{Key: key, Value: []byte(value), Delete: !put})
	}
	return list
}

// tags reads a list of versions: N of this table, or TABLE:N.
func tags(t *testing.T, text string) (list []api.Version) {
	t.Helper()
	for word := range strings.SplitSeq(text, ",") {
		v := api.Version{Table: tableID}
		format, to := "%d", []any{&v.Index}
		if strings.Contains(word, ":") {
			format, to = "%d:%d", []any{&v.Table, &v.Index}
		}
		if _, err := fmt.Sscanf(word, format, to...); err != nil {
			t.Fatalf("entity tag %q: %v", word, err)
		}
		list = append(list, v)
	}
	return list
}

func say(a *table.Answer) string {
	switch {
	case a == nil:
		return "no answer"
	case a.Code == "":
		return fmt.Sprintf("done %d", a.Version)
	}
	return fmt.Sprintf("%v, version %d", a.Err(tableID), a.Version)
}

func rows(t *testing.T, db *store.DB) string {
	t.Helper()
	var out strings.Builder
	lo, hi := store.GroupKey(uint64(tableID), table.SubRow), store.GroupEnd(uint64(tableID), table.SubRow)
	err := db.Scan(lo, hi, func(k, _ []byte) error {
		key := string(k[len(lo):])
		row, found, err := table.Get(db, tableID, key)
		fmt.Fprintf(&out, "%s = %s, version %d, found %t\n", key, row.Value, row.Version, found)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := table.Count(db, tableID)
	fmt.Fprintf(&out, "%d rows\n", n)
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// randomEntry draws from few keys and ids, so that resends, conditions, reused
// ids, expiry and old writes all happen.
func randomEntry(rnd *rand.Rand, index uint64) entry {
	if rnd.IntN(20) == 0 {
		return entry{}
	}
	c := wire.Command{
		Op:    api.OpPut,
		ID:    api.RequestID{byte(rnd.IntN(40)) + 1},
		Keyed: rnd.IntN(3) == 0,
		Key:   "k" + strconv.Itoa(rnd.IntN(5)),
		Value: []byte(strconv.Itoa(rnd.IntN(2))),
	}
	if rnd.IntN(3) == 0 {
		c.Op, c.Value = api.OpDelete, nil
	}
	switch rnd.IntN(7) {
	case 6:
		c.Op, c.Key = api.OpBatch, ""
		c.Value = wire.AppendChanges(nil, []api.Change{
			{Key: "k" + strconv.Itoa(rnd.IntN(5)), Value: []byte("b")}, {Key: "k" + strconv.Itoa(rnd.IntN(5)), Delete: true},
		})
	case 0:
		c.IfAbsent = true
	case 1:
		c.IfExists = true
	case 2:
		for range rnd.IntN(3) + 1 {
			c.IfMatch = append(c.IfMatch, api.Version{Table: tableID, Index: index - min(index-1, rnd.Uint64N(8)+1)})
		}
	}
	if rnd.IntN(4) != 0 {
		c.Born = index - min(index, rnd.Uint64N(40))
	}
	elapsed := time.Duration(rnd.IntN(3000)) * time.Millisecond
	if rnd.IntN(30) == 0 {
		elapsed = 16 * time.Minute
	}
	return entry{elapsed: elapsed, data: encode(c)}
}

// Where batches end, and when a replica was restarted, must not show in what it
// holds or answers.
func TestSameEntriesSameState(t *testing.T) {
	codes := map[api.Code]int{}
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		one, other := newReplica(t), newReplica(t)
		for round := range 60 {
			var entries []entry
			for i := range uint64(rnd.IntN(12) + 1) {
				entries = append(entries, randomEntry(rnd, one.index+i+1))
			}
			var singly []*table.Answer
			for _, e := range entries {
				singly = append(singly, other.apply(e)...)
			}
			for i, a := range one.apply(entries...) {
				if say(a) != say(singly[i]) {
					t.Fatalf("seed %d round %d entry %d: %q in one batch, %q alone", seed, round, i, say(a), say(singly[i]))
				}
				if a != nil {
					codes[a.Code]++
				}
			}
			if one.m.Dump() != other.m.Dump() {
				t.Fatalf("seed %d round %d: memory differs:\n%s\n%s", seed, round, one.m.Dump(), other.m.Dump())
			}
			if rnd.IntN(10) == 0 {
				other.reopen()
			}
		}
		if one.hash() != other.hash() {
			t.Fatalf("seed %d: the same entries left different states", seed)
		}
	}
	for _, c := range []api.Code{"", api.CodeIDReused, api.CodeBehind, api.CodePreconditionFailed} {
		if codes[c] < 20 {
			t.Errorf("the entries met %q only %d times: %v", c, codes[c], codes)
		}
	}
}

// Hash must see everything that a machine keeps.
func TestHashSeesAll(t *testing.T) {
	r := newReplica(t)
	seen := map[[32]byte]string{r.hash(): "nothing"}
	for _, step := range []struct {
		name string
		c    wire.Command
	}{
		{"a row", wire.Command{Op: api.OpPut, Key: "a", Value: []byte("1")}},
		{"the same row, later", wire.Command{Op: api.OpPut, Key: "a", Value: []byte("1")}},
		{"an answer", wire.Command{Op: api.OpDelete, Key: "b", ID: api.RequestID{1}}},
	} {
		r.apply(entry{data: encode(step.c)})
		if before, ok := seen[r.hash()]; ok {
			t.Errorf("%s and %s have the same hash", step.name, before)
		}
		seen[r.hash()] = step.name
	}
	r.apply(entry{data: encode(wire.Command{Op: api.OpDelete, Key: "b", ID: api.RequestID{1}})})
	if seen[r.hash()] != "an answer" {
		t.Error("a resend changed the state")
	}
	r.apply(entry{elapsed: 1, data: encode(wire.Command{Op: api.OpDelete, Key: "b", ID: api.RequestID{1}})})
	if seen[r.hash()] != "" {
		t.Error("the clock is not in the hash")
	}
}

// Another table's rows and answers are none of ours.
func TestTablesAreApart(t *testing.T) {
	r := newReplica(t)
	r.apply(entry{data: encode(wire.Command{Op: api.OpPut, Key: "a", Value: []byte("1"), ID: api.RequestID{1}})})
	before := r.hash()
	next, err := table.Open(r.db, tableID+1)
	r.check(err)
	b := r.db.NewBatch()
	_, a, err := next.Apply(b, 9, 1, time.Second, encode(wire.Command{Op: api.OpPut, Key: "a", Value: []byte("2"), ID: api.RequestID{1}}))
	r.check(err)
	r.check(b.Commit(false))
	if got := say(a.(*table.Answer)); got != "done 9" {
		t.Errorf("another table's id was taken for ours: %s", got)
	}
	if r.hash() != before {
		t.Error("another table changed this one")
	}
	if row, _, err := table.Get(r.db, tableID, "a"); err != nil || string(row.Value) != "1" {
		t.Errorf("got %q, %v", row.Value, err)
	}
}

// Every entry drops more than one id at most, so that a burst of ids goes too.
func TestBurstIsForgotten(t *testing.T) {
	r := newReplica(t)
	write := func(id int, elapsed time.Duration) {
		c := wire.Command{Op: api.OpPut, ID: api.RequestID{byte(id), byte(id >> 8), 1}, Key: "k", Born: r.index}
		r.apply(entry{elapsed: elapsed, data: encode(c)})
	}
	for i := range 1000 {
		write(i, 0)
	}
	write(3000, 10*time.Second)
	write(1000, table.KeepMade-10*time.Second+time.Millisecond)
	if kept := r.m.Kept(); kept != 994 { // 8 gone, 2 came
		t.Errorf("%d ids are kept after one entry, want 994", kept)
	}
	for i := range 150 {
		write(2000+i, 0)
	}
	if kept := r.m.Kept(); kept != 152 {
		t.Errorf("%d ids are kept, want the 152 new ones", kept)
	}
	n := 0
	lo, hi := store.GroupKey(uint64(tableID), table.SubID), store.GroupEnd(uint64(tableID), table.SubID)
	r.check(r.db.Scan(lo, hi, func(_, _ []byte) error { n++; return nil }))
	if n != 152 {
		t.Errorf("%d ids are in the database, want 152", n)
	}
}

// TestManyAreForgotten: of many ids, more go with an entry than of few, so that some
// entries are enough for those of a table that was busy.
func TestManyAreForgotten(t *testing.T) {
	r := newReplica(t)
	const many = 20 * 1024
	entries := make([]entry, many)
	for i := range entries {
		entries[i].data = encode(wire.Command{Op: api.OpPut, ID: api.RequestID{byte(i), byte(i >> 8), 1}, Key: "k", Born: 1})
	}
	r.apply(entries...)
	last := wire.Command{Op: api.OpPut, ID: api.RequestID{2}, Key: "k", Born: 1}
	r.apply(entry{elapsed: time.Second, data: encode(last)})
	if r.m.Past() {
		t.Error("nothing is past its lifetime yet")
	}
	r.apply(entry{elapsed: table.KeepMade})
	if kept := r.m.Kept(); kept != many+1-20 || !r.m.Past() {
		t.Errorf("%d ids are kept after one entry, want %d; more to forget: %t", kept, many+1-20, r.m.Past())
	}
	n := 1
	for ; r.m.Past(); n++ {
		r.apply(entry{})
	}
	if kept := r.m.Kept(); kept != 1 || n > many/9 {
		t.Errorf("%d ids are kept after %d entries, want 1 after fewer than it takes if 8 go with each", kept, n)
	}
}

func TestApplyStopsAtWhatItCannotRead(t *testing.T) {
	r := newReplica(t)
	b := r.db.NewBatch()
	defer func() { r.check(b.Close()) }()
	later := encode(wire.Command{Op: api.OpPut, Key: "k"})
	later[0] = 9
	_, _, err := r.m.Apply(b, 41, 7, 0, later)
	if err == nil || !strings.Contains(err.Error(), "entry 41 of term 7: command: version 9") {
		t.Errorf("a later version: %v", err)
	}
	if !b.Empty() {
		t.Error("an entry that cannot be read changed something")
	}
}

func TestOpenStopsAtWhatItCannotRead(t *testing.T) {
	for sub, says := range map[byte]string{table.SubClock: "clock: format 9", table.SubID: "answer of entry"} {
		r := newReplica(t)
		b := r.db.NewBatch()
		key := store.GroupKey(uint64(tableID), sub)
		if sub == table.SubID {
			key = append(key, bytes.Repeat([]byte{1}, 8)...)
		}
		b.Set(key, []byte{9})
		r.check(b.Commit(false))
		if _, err := table.Open(r.db, tableID); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

// A value is kept byte for byte, up to the limit.
func TestValues(t *testing.T) {
	r := newReplica(t)
	for _, v := range [][]byte{nil, {0}, bytes.Repeat([]byte{0xff}, api.MaxValue)} {
		r.apply(entry{data: encode(wire.Command{Op: api.OpPut, Key: "k", Value: v})})
		row, found, err := table.Get(r.db, tableID, "k")
		if err != nil || !found || !bytes.Equal(row.Value, v) || row.Version != r.index {
			t.Errorf("%d bytes: got %d bytes, version %d, %t, %v", len(v), len(row.Value), row.Version, found, err)
		}
	}
}

// TestFull: past its bound a lifetime is full, the other is not; what is known
// stays known until its time is over, by a clock that needs no writes.
func TestFull(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		keep := table.KeepMade
		if keyed {
			keep = table.KeepKeyed
		}
		r := newReplica(t)
		if r.m.Bound(3*table.IDCost, 0); keyed {
			r.m.Bound(0, 3*table.IDCost)
		}
		write := func(id byte) *table.Answer {
			c := wire.Command{Op: api.OpPut, ID: api.RequestID{id}, Keyed: keyed, Key: "k", Born: r.index}
			return r.apply(entry{data: encode(c)})[0]
		}
		for id := byte(1); id <= 3; id++ {
			if r.m.Full(keyed) || r.m.Knows(api.RequestID{id}) {
				t.Fatalf("keyed %t: id %d: full, or known before it came", keyed, id)
			}
			write(id)
		}
		if !r.m.Full(keyed) || r.m.Full(!keyed) {
			t.Fatalf("keyed %t: full %t, the other lifetime %t", keyed, r.m.Full(keyed), r.m.Full(!keyed))
		}
		// The bound is for those who propose: what comes all the same is done and
		// remembered, and nothing is forgotten for it.
		write(4)
		r.apply(entry{elapsed: keep})
		for id := byte(1); id <= 4; id++ {
			if a := write(id); a.Version != uint64(id) || !r.m.Knows(api.RequestID{id}) {
				t.Errorf("keyed %t: id %d was forgotten early: %s", keyed, id, say(a))
			}
		}
		r.apply(entry{elapsed: time.Millisecond})
		if r.m.Full(keyed) || r.m.Knows(api.RequestID{1}) {
			t.Errorf("keyed %t: full after the lifetime", keyed)
		}
	}
}

// TestLateResend sends a write again when its answer is long forgotten: it is
// never done twice. Who knew no position at all is refused too.
func TestLateResend(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		r := newReplica(t)
		for _, born := range []uint64{0, 1, 2} {
			c := wire.Command{Op: api.OpPut, ID: api.RequestID{byte(born) + 1}, Keyed: keyed, Key: "counter", Born: born}
			if a := r.apply(entry{data: encode(c)})[0]; born == 0 && a.Code != "" {
				t.Fatalf("a new table refuses: %s", say(a))
			}
		}
		r.apply(entry{elapsed: 16 * time.Minute})
		for born := range uint64(4) {
			c := wire.Command{Op: api.OpPut, ID: api.RequestID{byte(born) + 1}, Keyed: keyed, Key: "counter", Born: born}
			a := r.apply(entry{data: encode(c)})[0]
			// The newest answer forgotten is that of entry 3.
			if done := a.Code == ""; done != (born >= 3) || !done && (a.Code != api.CodeBehind || a.Version != r.index) {
				t.Errorf("keyed %t, born %d: %s", keyed, born, say(a))
			}
		}
	}
}
