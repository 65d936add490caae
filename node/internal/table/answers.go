package table

import (
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// How long the answer to a request id is kept, by the table's own clock.
const (
	KeepMade  = 30 * time.Second // made by a node, which sends again for api.Patience at most
	KeepKeyed = 15 * time.Minute // from a client's Idempotency-Key
)

// What the answers of one table may take in memory, by lifetime: 1.4 million of
// ids that nodes made, 2.8 million of those from clients' keys. The owner refuses
// new writes before more come: an id is never forgotten early.
const (
	MaxMadeBytes  = 128 << 20
	MaxKeyedBytes = 256 << 20
)

// idCost is what one answer takes in memory, counted generously: its place in the
// map, up to 57 bytes, and in the queue. The rest is in the database.
const idCost = 96

// forgetAtOnce and forgetShare bound the work of one entry: that many answers of each
// lifetime are forgotten one by one at most, or that part of all. It is more than one,
// so that the oldest never pile up, and more where many are: a table that was busy and
// has few entries now would keep them for days, and the room of the node with them.
const (
	forgetAtOnce = 8
	forgetShare  = 1024
)

// idFormat is the first byte of a stored answer.
const idFormat = 1

// outcome is how a write ended. The numbers are on disk: append only.
type outcome byte

const (
	outcomeDone   outcome = 1
	outcomeFailed outcome = 2 // a condition did not hold
)

// answered is what is kept of a request that was answered.
type answered struct {
	id      api.RequestID
	keyed   bool
	hash    [16]byte      // of the request
	at      time.Duration // by the table's clock
	index   uint64        // of the entry
	version uint64        // see Answer.Version
	outcome outcome
}

// lifetime has the ids that are forgotten after the same time, oldest first.
type lifetime struct {
	keep      time.Duration
	early     time.Duration // a defect: so much before it is over
	max       int64         // bytes
	queue     queue
	forgotten uint64 // index of the newest entry whose answer was
	bytes     atomic.Int64
	share     *share // of the node's budget; nil: not counted there
}

// grow counts so many bytes more.
func (l *lifetime) grow(n int64) {
	l.bytes.Add(n)
	if l.share != nil {
		l.share.used.Add(n)
	}
}

// past reports whether what was answered at a time is past its lifetime now.
func (l *lifetime) past(now, at time.Duration) bool { return now-at > l.keep-l.early }

// over reports whether all that it has is past its lifetime, or it has nothing.
func (l *lifetime) over(now time.Duration) bool {
	newest, some := l.queue.newest()
	return !some || l.past(now, newest.at)
}

// left reports whether anything that it has is past its lifetime.
func (l *lifetime) left(now time.Duration) bool {
	oldest, some := l.queue.oldest()
	return some && l.past(now, oldest.at)
}

// clear forgets all.
func (l *lifetime) clear() {
	if newest, some := l.queue.newest(); some {
		l.forgotten = newest.index
	}
	l.queue = queue{}
	l.grow(-l.bytes.Load())
}

// A map keeps the room of what it once held. It is made anew when an idsPart of that
// is left, if it was worth it: the loop waits for that.
const (
	idsPart  = 8
	idsLeast = 1024
)

// ids are the requests that are remembered: the entry that answered each. Only
// the loop changes it; others may look whether one is there.
type ids struct {
	peak int // most that known has held since it was made; the loop's own
	mu   struct {
		sync.RWMutex
		known map[api.RequestID]uint64
	}
}

func (i *ids) find(id api.RequestID) (index uint64, known bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	index, known = i.mu.known[id]
	return index, known
}

func (i *ids) add(id api.RequestID, index uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.known[id] = index
	i.peak = max(i.peak, len(i.mu.known))
}

func (i *ids) remove(id api.RequestID) {
	i.mu.Lock()
	delete(i.mu.known, id)
	left := len(i.mu.known)
	i.mu.Unlock()
	if i.peak > idsLeast && left < i.peak/idsPart {
		known := make(map[api.RequestID]uint64, left) // maps.Clone may keep the room
		maps.Copy(known, i.mu.known)                  // nobody else changes it
		i.replace(known)
	}
}

func (i *ids) replace(known map[api.RequestID]uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.known, i.peak = known, len(known)
}

// some reports whether any is remembered.
func (i *ids) some() bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return len(i.mu.known) > 0
}

// clear forgets all.
func (i *ids) clear() { i.replace(map[api.RequestID]uint64{}) }

// life returns the lifetime of ids that are keyed, or of those that are not.
func (m *Machine) life(keyed bool) *lifetime { //nolint:revive // keyed is data, not a mode
	if keyed {
		return &m.keyed
	}
	return &m.made
}

// forget drops answers that are past their lifetime: the oldest few of each, or all
// at once if that is all that there is. A table that nobody writes to has one entry
// for that, not one for every few answers.
func (m *Machine) forget(b *store.Batch) {
	for _, l := range []*lifetime{&m.made, &m.keyed} {
		m.forgetOldest(b, l)
	}
	if m.ids.some() && m.made.over(m.clock) && m.keyed.over(m.clock) {
		b.DeleteRange(store.GroupKey(uint64(m.id), SubID), store.GroupEnd(uint64(m.id), SubID))
		m.made.clear()
		m.keyed.clear()
		m.ids.clear()
	}
	m.past.Store(m.made.left(m.clock) || m.keyed.left(m.clock))
}

func (m *Machine) forgetOldest(b *store.Batch, l *lifetime) {
	for range max(forgetAtOnce, l.bytes.Load()/idCost/forgetShare) {
		oldest, some := l.queue.oldest()
		if !some || !l.past(m.clock, oldest.at) {
			return
		}
		b.Delete(idKey(m.id, oldest.index))
		m.ids.remove(oldest.id)
		l.queue.pop()
		l.forgotten = oldest.index
		l.grow(-idCost)
	}
}

func (m *Machine) remember(b *store.Batch, a answered) {
	b.Set(idKey(m.id, a.index), appendAnswered(&a))
	m.fresh[a.index] = a
	m.keep(a)
}

func (m *Machine) keep(a answered) {
	m.ids.add(a.id, a.index)
	l := m.life(a.keyed)
	l.queue.push(queued{id: a.id, at: a.at, index: a.index})
	l.grow(idCost)
}

// recall returns the answer that an entry gave, and that is remembered.
func (m *Machine) recall(index uint64) (answered, error) {
	if a, ok := m.fresh[index]; ok {
		return a, nil
	}
	v, found, err := m.db.Get(idKey(m.id, index))
	if err != nil {
		return answered{}, err
	}
	if !found {
		return answered{}, fmt.Errorf("the answer of entry %d is missing", index)
	}
	a, err := decodeAnswered(index, v)
	if err != nil {
		return answered{}, fmt.Errorf("answer of entry %d: %w", index, err)
	}
	return a, nil
}

func (m *Machine) loadAnswers(db Scanner) error {
	lo, hi := store.GroupKey(uint64(m.id), SubID), store.GroupEnd(uint64(m.id), SubID)
	return db.Scan(lo, hi, func(k, v []byte) error { return m.loadAnswer(k[len(lo):], v) })
}

// loadAnswer takes a stored answer, and its key without what it begins with.
func (m *Machine) loadAnswer(key, v []byte) error {
	if len(key) != 8 {
		return fmt.Errorf("answer under a key of %d bytes", len(key))
	}
	index := binary.BigEndian.Uint64(key)
	a, err := decodeAnswered(index, v)
	if err != nil {
		return fmt.Errorf("answer of entry %d: %w", index, err)
	}
	m.keep(a)
	return nil
}

// idKey is the key of the answer that an entry gave. Answers come and go in the
// order of their entries, which the database likes better than that of random
// ids; which entry answered an id is known in memory.
func idKey(table api.TableID, index uint64) []byte {
	return binary.BigEndian.AppendUint64(store.GroupKey(uint64(table), SubID), index)
}

func appendAnswered(a *answered) []byte {
	v := append(make([]byte, 0, 64), idFormat)
	v = wire.AppendBool(v, a.keyed)
	v = append(v, a.id[:]...)
	v = append(v, a.hash[:]...)
	v = wire.AppendUvarint(v, uint64(a.at))
	v = append(v, byte(a.outcome))
	return wire.AppendUvarint(v, a.version)
}

func decodeAnswered(index uint64, v []byte) (answered, error) {
	r := wire.NewReader(v)
	if f := r.Byte("format"); r.Err() == nil && f != idFormat {
		return answered{}, fmt.Errorf("format %d: %w", f, wire.ErrNewer)
	}
	a := answered{
		index: index, keyed: r.Bool("keyed"), id: r.Array16("request id"), hash: r.Array16("hash"),
		at: time.Duration(r.Uvarint("time")), outcome: outcome(r.Byte("outcome")), version: r.Uvarint("version"),
	}
	if r.Err() == nil && a.outcome != outcomeDone && a.outcome != outcomeFailed {
		return answered{}, fmt.Errorf("outcome %d: %w", a.outcome, wire.ErrNewer)
	}
	return a, r.Done()
}
