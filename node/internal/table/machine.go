package table

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// Keyspaces of a table inside its group's. The numbers are on disk: append only.
const (
	SubRow   = store.SubState     // key -> row
	SubID    = store.SubState + 1 // index of an entry -> its request id and answer
	SubClock = store.SubState + 2 // one record: the clock, and what was forgotten
)

// manyPending is how many rows a batch of entries rarely writes.
const manyPending = 1024

// stateFormat is the first byte of the clock's record.
const stateFormat = 1

// Reader reads the database.
type Reader interface {
	Get(key []byte) (value []byte, found bool, err error)
}

// Scanner reads the database in order too.
type Scanner interface {
	Reader
	Scan(lo, hi []byte, f func(key, value []byte) error) error
}

// Answer is what came of a write.
type Answer struct {
	Code api.Code // "": it was done
	// Version is the index of the write that was done; of a failed condition: of the
	// row there, 0 for none; of a write that is behind: of the entry that says so.
	Version uint64
	Message string // of a refusal, public
}

// Err returns a refusal of a table as an *api.Error, or nil.
func (a *Answer) Err(table api.TableID) error {
	if a.Code == "" {
		return nil
	}
	e := &api.Error{Code: a.Code, Message: a.Message}
	if a.Version != 0 {
		e.At = api.Position{Table: table, Index: a.Version}
	}
	return e
}

// Machine applies the entries of one table. All methods but Full, Lasts, Past and
// Knows belong to one goroutine.
type Machine struct {
	id    api.TableID
	db    Reader
	clock time.Duration // the table's own

	ticked bool // the clock's record is due

	ids   ids
	made  lifetime // of ids that nodes made
	keyed lifetime // of ids from clients' keys
	past  atomic.Bool

	// pending has the versions of rows written since Committed, 0 for those
	// deleted, and fresh the answers given: the database does not show them yet.
	pending map[string]uint64
	fresh   map[uint64]answered

	defect Defect
}

// Defect breaks a machine on purpose, in a way that a test must find. The zero
// value is the machine as it should be.
type Defect uint8

// The defects.
const (
	Sound           Defect = iota
	BornNotCompared        // a write is done, though whether it was is forgotten
	HashNotCompared        // another request under an id gets the answer of the first
	ForgottenEarly         // answers are kept for a hundredth of their time
	AnswerNotKept          // of a condition that did not hold
	BatchInParts           // a batch reaches the database in two parts
	BatchUnseen            // a condition does not see what a batch before it did
	BatchAgain             // a batch that is sent again is done again, and answered as before
	BatchShort             // the last change of a batch of several is left out
	ValueFlipped           // a bit of each value turns on its way into the database
)

// Break gives the machine a defect, before its first entry.
func (m *Machine) Break(d Defect) {
	if m.defect = d; d == ForgottenEarly {
		m.made.early, m.keyed.early = KeepMade-KeepMade/100, KeepKeyed-KeepKeyed/100
	}
}

// Open returns the machine of a table as the database has it.
func Open(db Scanner, id api.TableID) (*Machine, error) {
	m := newMachine(db, id)
	if err := m.readClock(); err != nil {
		return nil, fmt.Errorf("table %s: clock: %w", id, err)
	}
	if err := m.loadAnswers(db); err != nil {
		return nil, fmt.Errorf("table %s: %w", id, err)
	}
	return m, nil
}

func newMachine(db Reader, id api.TableID) *Machine {
	m := &Machine{
		id:      id,
		db:      db,
		made:    lifetime{keep: KeepMade},
		keyed:   lifetime{keep: KeepKeyed},
		pending: map[string]uint64{},
		fresh:   map[uint64]answered{},
	}
	m.Bound(0, 0)
	m.ids.mu.known = map[api.RequestID]uint64{}
	return m
}

// Arrival is the machine of a table whose state comes from elsewhere, pair by pair.
type Arrival struct{ m *Machine }

// Arrive returns the machine of a table of which nothing has come yet. db is where
// all that comes will be.
func Arrive(db Reader, id api.TableID) *Arrival { return &Arrival{newMachine(db, id)} }

// Add takes a pair of the state, in the order of the keys. The key begins with its
// keyspace. Both are the caller's.
func (a *Arrival) Add(key, value []byte) error {
	var err error
	switch key[0] {
	case SubID:
		err = a.m.loadAnswer(key[1:], value)
	case SubClock:
		err = a.m.loadClock(value)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", a.m.id, err)
	}
	return nil
}

// Machine returns the machine of what was added, which is in the database now.
func (a *Arrival) Machine() *Machine { return a.m }

// Apply puts what an entry does into b. It returns the request's id and its
// *Answer; both are zero for an entry without a command, which is raft's own or
// only moves the clock. An error means that this replica cannot go on: the entry,
// or the database, is damaged or from a later release.
//
// elapsed is the leader's time between the entry before and this one. Rows that
// Apply wrote are seen by the next Apply, whether b is committed or not.
func (m *Machine) Apply(b *store.Batch, index, term uint64, elapsed time.Duration, data []byte) ([16]byte, any, error) {
	if len(data) == 0 {
		if elapsed > 0 || m.made.left(m.clock) || m.keyed.left(m.clock) {
			m.tick(b, elapsed)
		}
		return [16]byte{}, nil, nil
	}
	c, err := wire.DecodeCommand(data)
	if err != nil {
		return [16]byte{}, nil, fmt.Errorf("table %s: entry %d of term %d: %w", m.id, index, term, err)
	}
	m.tick(b, elapsed)
	answer, err := m.answer(b, index, &c)
	if err != nil {
		return [16]byte{}, nil, fmt.Errorf("table %s: entry %d of term %d: %w", m.id, index, term, err)
	}
	return c.ID, answer, nil
}

// tick moves the clock, and forgets what is past its lifetime then.
func (m *Machine) tick(b *store.Batch, elapsed time.Duration) {
	m.clock += max(elapsed, 0)
	m.forget(b)
	m.ticked = true
}

// Flush puts the table's clock into b, once for all entries that Apply put there.
func (m *Machine) Flush(b *store.Batch) {
	if m.ticked {
		m.ticked = false
		m.saveClock(b)
	}
}

// Committed says that every batch given to Apply so far is in the database.
func (m *Machine) Committed() {
	if len(m.pending) > manyPending {
		m.pending = map[string]uint64{} // an emptied one would keep its size, and be emptied at that cost each time
	}
	clear(m.pending)
	clear(m.fresh)
}

// Clock returns the table's own time: how long it has had leaders.
func (m *Machine) Clock() time.Duration { return m.clock }

// Bound sets what the answers of each lifetime may take in memory, in bytes; 0: as
// MaxMadeBytes and MaxKeyedBytes say.
func (m *Machine) Bound(made, keyed int64) {
	m.made.max, m.keyed.max = cmp.Or(made, MaxMadeBytes), cmp.Or(keyed, MaxKeyedBytes)
}

// Join counts what the answers take in a node's budget too, until Leave.
func (m *Machine) Join(b *Budget) {
	m.made.share, m.keyed.share = &b.made, &b.keyed
	for _, l := range []*lifetime{&m.made, &m.keyed} {
		l.share.used.Add(l.bytes.Load())
	}
}

// Leave ends what Join began. No entry may be applied after it.
func (m *Machine) Leave() {
	for _, l := range []*lifetime{&m.made, &m.keyed} {
		if l.share != nil {
			l.share.used.Add(-l.bytes.Load())
			l.share = nil
		}
	}
}

// Lasts returns how long after the last entry all answers are past their lifetime, 0
// if none is remembered. It may be called from any goroutine.
func (m *Machine) Lasts() time.Duration {
	switch {
	case m.keyed.bytes.Load() > 0:
		return KeepKeyed
	case m.made.bytes.Load() > 0:
		return KeepMade
	}
	return 0
}

// Past reports whether answers are left that were past their lifetime at the last entry:
// another one forgets more of them. It may be called from any goroutine.
func (m *Machine) Past() bool { return m.past.Load() }

// Full reports whether the table remembers as many answers of a lifetime as it may:
// keyed, or made. A new write must wait then until some are forgotten. It may be
// called from any goroutine.
func (m *Machine) Full(keyed bool) bool {
	l := m.life(keyed)
	return l.bytes.Load() >= l.max
}

// Knows reports whether the answer to a request is remembered. It may be called
// from any goroutine.
func (m *Machine) Knows(id api.RequestID) bool {
	_, known := m.ids.find(id)
	return known
}

func (m *Machine) answer(b *store.Batch, index uint64, c *wire.Command) (*Answer, error) {
	if at, known := m.ids.find(c.ID); known {
		if m.defect == BatchAgain && c.Op == api.OpBatch {
			if err := m.batch(b, index, c.Value); err != nil {
				return nil, err
			}
		}
		return m.again(c, at)
	}
	if !c.ID.IsZero() && c.Born < m.life(c.Keyed).forgotten && m.defect != BornNotCompared {
		// This entry did nothing. Whether an earlier one of the same id did, only
		// the router can know, which sent it. One that knows no position of the
		// table was born before all.
		return &Answer{
			Code: api.CodeBehind, Version: index,
			Message: "the node that took the request was too far behind the table: whether it was done is forgotten",
		}, nil
	}
	end, version, err := m.execute(b, index, c)
	if err != nil {
		return nil, err
	}
	if !c.ID.IsZero() && (end == outcomeDone || m.defect != AnswerNotKept) {
		m.remember(b, answered{id: c.ID, keyed: c.Keyed, hash: c.Hash, at: m.clock, index: index, outcome: end, version: version})
	}
	return m.say(end, version), nil
}

// again answers a request that the entry at an index has answered before.
func (m *Machine) again(c *wire.Command, at uint64) (*Answer, error) {
	before, err := m.recall(at)
	if err != nil {
		return nil, err
	}
	if before.hash != c.Hash && m.defect != HashNotCompared {
		return &Answer{
			Code:    api.CodeIDReused,
			Message: "another request was sent under this request's id",
		}, nil
	}
	return m.say(before.outcome, before.version), nil
}

// execute does what c asks for if its conditions hold.
func (m *Machine) execute(b *store.Batch, index uint64, c *wire.Command) (outcome, uint64, error) {
	if len(c.IfMatch) > 0 || c.IfAbsent || c.IfExists {
		now, err := m.version(c.Key)
		if err != nil {
			return 0, 0, err
		}
		if !m.holds(c, now) {
			return outcomeFailed, now, nil
		}
	}
	switch c.Op {
	case api.OpBatch:
		if err := m.batch(b, index, c.Value); err != nil {
			return 0, 0, err
		}
	case api.OpPut:
		row := appendRow(nil, index, c.Value)
		if m.defect == ValueFlipped {
			row[len(row)-1] ^= 1
		}
		b.Set(rowKey(m.id, c.Key), row)
		m.pending[c.Key] = index
	default:
		b.Delete(rowKey(m.id, c.Key))
		m.pending[c.Key] = 0
	}
	return outcomeDone, index, nil
}

// batch makes the changes of a batch, in their order.
func (m *Machine) batch(b *store.Batch, index uint64, changes []byte) error {
	key := store.GroupKey(uint64(m.id), SubRow)
	prefix := len(key)
	var row []byte
	each := wire.ReadChanges(changes)
	for each.Next() {
		if m.defect == BatchShort && each.Len() == 0 && row != nil {
			break
		}
		key = append(key[:prefix], each.Key...)
		version := index
		if each.Delete {
			version = 0
			b.Delete(key)
		} else {
			row = appendRow(row[:0], index, each.Value)
			b.Set(key, row)
		}
		if m.defect != BatchUnseen {
			m.pending[string(each.Key)] = version
		}
		if m.defect == BatchInParts && each.Len() == 1 {
			if err := b.Cut(); err != nil {
				return err
			}
		}
	}
	return each.Err()
}

// holds reports whether the conditions of c hold for a row of that version, 0 for
// none.
func (m *Machine) holds(c *wire.Command, now uint64) bool {
	switch {
	case c.IfAbsent && now != 0, c.IfExists && now == 0:
		return false
	case len(c.IfMatch) == 0:
		return true
	}
	return now != 0 && slices.Contains(c.IfMatch, api.Version{Table: m.id, Index: now})
}

// version returns the index that wrote a row, 0 if there is none.
func (m *Machine) version(key string) (uint64, error) {
	if v, ok := m.pending[key]; ok {
		return v, nil
	}
	row, _, err := Get(m.db, m.id, key)
	return row.Version, err
}

// say puts an outcome into words. Only the outcome is stored.
func (m *Machine) say(o outcome, version uint64) *Answer {
	if o == outcomeDone {
		return &Answer{Version: version}
	}
	a := &Answer{Code: api.CodePreconditionFailed, Version: version, Message: "the row does not exist"}
	if version != 0 {
		a.Message = "the row's version is " + api.ETag(api.Version{Table: m.id, Index: version})
	}
	return a
}

func (m *Machine) readClock() error {
	v, found, err := m.db.Get(m.clockKey())
	if err != nil || !found {
		return err
	}
	return m.loadClock(v)
}

// loadClock takes the clock's record.
func (m *Machine) loadClock(v []byte) error {
	r := wire.NewReader(v)
	if f := r.Byte("format"); f != stateFormat {
		return fmt.Errorf("format %d: %w", f, wire.ErrNewer)
	}
	m.clock = time.Duration(r.Uvarint("clock"))
	m.made.forgotten = r.Uvarint("forgotten of nodes")
	m.keyed.forgotten = r.Uvarint("forgotten of keys")
	return r.Done()
}

func (m *Machine) saveClock(b *store.Batch) {
	v := append(make([]byte, 0, 32), stateFormat)
	v = wire.AppendUvarint(v, uint64(m.clock))
	v = wire.AppendUvarint(v, m.made.forgotten)
	v = wire.AppendUvarint(v, m.keyed.forgotten)
	b.Set(m.clockKey(), v)
}

func (m *Machine) clockKey() []byte { return store.GroupKey(uint64(m.id), SubClock) }
