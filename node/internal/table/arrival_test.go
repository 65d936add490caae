package table_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// shut is a database that nobody may read.
type shut struct{ reads int }

var errShut = errors.New("the database was read")

// Get implements table.Reader.
func (s *shut) Get([]byte) ([]byte, bool, error) {
	s.reads++
	return nil, false, errShut
}

// TestArrival fills a machine pair by pair: it knows what one knows that is opened from
// the same database, and reads nothing of it. What the loop has to do for a
// snapshot does not grow with the answers in it.
func TestArrival(t *testing.T) {
	r := newReplica(t)
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		e := randomEntry(rnd, r.index+1)
		e.elapsed = min(e.elapsed, 500*time.Millisecond)
		r.apply(e)
	}
	if r.m.Kept() < 10 {
		t.Fatalf("%d answers are kept: that shows nothing", r.m.Kept())
	}
	var db shut
	in := table.Arrive(&db, tableID)
	lo := store.GroupKey(uint64(tableID), store.SubState)
	r.check(r.db.Scan(lo, store.GroupEnd(uint64(tableID), table.SubClock), func(k, v []byte) error {
		return in.Add(k[store.GroupPrefix:], v)
	}))
	m := in.Machine()
	if m.Dump() != r.m.Dump() || m.Clock() != r.m.Clock() || m.Kept() != r.m.Kept() {
		t.Errorf("it knows\n%swant\n%s", m.Dump(), r.m.Dump())
	}
	if db.reads > 0 {
		t.Errorf("the database was read %d times", db.reads)
	}
	for name, key := range map[string][]byte{
		"an answer": append([]byte{table.SubID}, 1, 2, 3, 4, 5, 6, 7, 8), "the key of an answer": {table.SubID, 1}, "the clock": {table.SubClock},
	} {
		if err := table.Arrive(&db, tableID).Add(key, []byte{1}); err == nil {
			t.Errorf("%s that is damaged is taken", name)
		}
	}
}

// TestLasts: a table with an answer for a client's key remembers for as long as those
// last, one without for as long as the others do, and one with none has nothing to
// forget. What it holds is counted for the node as long as it is open.
func TestLasts(t *testing.T) {
	r := newReplica(t)
	all := table.NewBudget(1<<20, 1<<20)
	r.m.Join(all)
	expect := func(what string, want time.Duration, made, keyed int64) {
		t.Helper()
		if got := r.m.Lasts(); got != want || all.Bytes(false) != made*table.IDCost || all.Bytes(true) != keyed*table.IDCost {
			t.Errorf("%s: it lasts %s, want %s, and %d and %d bytes are counted", what, got, want, all.Bytes(false), all.Bytes(true))
		}
	}
	expect("nothing", 0, 0, 0)
	write := func(id byte, keyed bool, elapsed time.Duration) {
		c := wire.Command{Op: api.OpPut, Key: "k", ID: api.RequestID{id}, Keyed: keyed, Born: r.index}
		r.apply(entry{elapsed: elapsed, data: encode(c)})
	}
	write(1, false, 0)
	expect("one of a node", table.KeepMade, 1, 0)
	write(2, true, 0)
	expect("one of a key too", table.KeepKeyed, 1, 1)
	r.apply(entry{elapsed: table.KeepMade + time.Millisecond})
	expect("that of the key alone", table.KeepKeyed, 0, 1)
	r.apply(entry{elapsed: table.KeepKeyed})
	expect("nothing again", 0, 0, 0)
	write(3, false, 0)
	r.m.Leave()
	expect("after it was closed", table.KeepMade, 0, 0)
}
