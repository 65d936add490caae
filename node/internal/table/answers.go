package table

import (
	"cmp"
	"fmt"
	"slices"
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

// MaxIDBytes bounds the memory for answers of one table. The owner refuses new
// keyed writes before it is reached: an id is never forgotten early.
const MaxIDBytes = 64 << 20

// idCost is what one answer takes in memory, counted generously: its place in the
// map and in the queue.
const idCost = 160

// forgetAtOnce bounds the work of one entry: that many answers of each lifetime
// are forgotten at most. It is more than one, so that the oldest never pile up.
const forgetAtOnce = 8

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
	hash    [16]byte      // of the request
	at      time.Duration // by the table's clock
	index   uint64        // of the entry
	version uint64        // see Answer.Version
	outcome outcome
}

// lifetime has the ids that are forgotten after the same time, oldest first.
type lifetime struct {
	keep      time.Duration
	queue     []queued
	head      int    // queue[:head] was forgotten
	forgotten uint64 // index of the newest entry whose answer was
}

type queued struct {
	id    api.RequestID
	at    time.Duration
	index uint64
}

// pop drops the oldest id.
func (l *lifetime) pop() {
	l.forgotten = l.queue[l.head].index
	l.head++
	if l.head*2 > len(l.queue) {
		n := copy(l.queue, l.queue[l.head:])
		l.queue, l.head = l.queue[:n], 0
	}
}

// life returns the lifetime of ids that are keyed, or of those that are not.
func (m *Machine) life(keyed bool) *lifetime { //nolint:revive // keyed is data, not a mode
	if keyed {
		return &m.keyed
	}
	return &m.made
}

// forget drops the oldest answers of a lifetime that are past it.
func (m *Machine) forget(b *store.Batch, l *lifetime) {
	for range forgetAtOnce {
		if l.head == len(l.queue) || m.clock-l.queue[l.head].at <= l.keep {
			return
		}
		id := l.queue[l.head].id
		b.Delete(idKey(m.id, id))
		delete(m.answers, id)
		m.idBytes.Add(-idCost)
		l.pop()
	}
}

func (m *Machine) remember(b *store.Batch, c *wire.Command, a answered) {
	b.Set(idKey(m.id, c.ID), appendAnswered(c.Keyed, &a))
	m.keep(c.ID, c.Keyed, a)
}

func (m *Machine) keep(id api.RequestID, keyed bool, a answered) {
	m.answers[id] = a
	l := m.life(keyed)
	l.queue = append(l.queue, queued{id: id, at: a.at, index: a.index})
	m.idBytes.Add(idCost)
}

func (m *Machine) loadAnswers(db Scanner) error {
	lo, hi := store.GroupKey(uint64(m.id), SubID), store.GroupEnd(uint64(m.id), SubID)
	err := db.Scan(lo, hi, func(k, v []byte) error {
		if len(k) != len(lo)+len(api.RequestID{}) {
			return fmt.Errorf("request id of %d bytes", len(k)-len(lo))
		}
		id := api.RequestID(k[len(lo):])
		keyed, a, err := decodeAnswered(v)
		if err != nil {
			return fmt.Errorf("answer to request %s: %w", id, err)
		}
		m.keep(id, keyed, a)
		return nil
	})
	// Keys are in the order of their ids; the queue is in that of the entries.
	for _, l := range []*lifetime{&m.made, &m.keyed} {
		slices.SortFunc(l.queue, func(a, b queued) int { return cmp.Compare(a.index, b.index) })
	}
	return err
}

func idKey(table api.TableID, id api.RequestID) []byte {
	return append(store.GroupKey(uint64(table), SubID), id[:]...)
}

func appendAnswered(keyed bool, a *answered) []byte {
	v := append(make([]byte, 0, 64), idFormat)
	v = wire.AppendBool(v, keyed)
	v = append(v, a.hash[:]...)
	v = wire.AppendUvarint(v, uint64(a.at))
	v = wire.AppendUvarint(v, a.index)
	v = append(v, byte(a.outcome))
	return wire.AppendUvarint(v, a.version)
}

func decodeAnswered(v []byte) (keyed bool, a answered, err error) {
	r := wire.NewReader(v)
	if f := r.Byte("format"); r.Err() == nil && f != idFormat {
		return false, answered{}, fmt.Errorf("format %d: %w", f, wire.ErrNewer)
	}
	keyed = r.Bool("keyed")
	a.hash = r.Array16("hash")
	a.at = time.Duration(r.Uvarint("time"))
	a.index = r.Uvarint("index")
	a.outcome = outcome(r.Byte("outcome"))
	a.version = r.Uvarint("version")
	if r.Err() == nil && a.outcome != outcomeDone && a.outcome != outcomeFailed {
		return false, answered{}, fmt.Errorf("outcome %d: %w", a.outcome, wire.ErrNewer)
	}
	return keyed, a, r.Done()
}
