package table

import (
	"encoding/binary"
	"fmt"
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
	keyed bool
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
		oldest := l.queue[l.head]
		b.Delete(idKey(m.id, oldest.index))
		delete(m.answers, oldest.id)
		m.idBytes.Add(-idCost)
		l.pop()
	}
}

func (m *Machine) remember(b *store.Batch, c *wire.Command, a answered) {
	b.Set(idKey(m.id, a.index), appendAnswered(c.Keyed, c.ID, &a))
	m.keep(queued{id: c.ID, keyed: c.Keyed, at: a.at, index: a.index}, a)
}

func (m *Machine) keep(q queued, a answered) {
	m.answers[q.id] = a
	l := m.life(q.keyed)
	l.queue = append(l.queue, q)
	m.idBytes.Add(idCost)
}

func (m *Machine) loadAnswers(db Scanner) error {
	lo, hi := store.GroupKey(uint64(m.id), SubID), store.GroupEnd(uint64(m.id), SubID)
	err := db.Scan(lo, hi, func(k, v []byte) error {
		if len(k) != len(lo)+8 {
			return fmt.Errorf("answer under a key of %d bytes", len(k)-len(lo))
		}
		index := binary.BigEndian.Uint64(k[len(lo):])
		q, a, err := decodeAnswered(index, v)
		if err != nil {
			return fmt.Errorf("answer of entry %d: %w", index, err)
		}
		m.keep(q, a)
		return nil
	})
	return err
}

// idKey is the key of the answer that an entry gave. Answers come and go in the
// order of their entries, which the database likes better than that of random
// ids; they are looked up in memory alone.
func idKey(table api.TableID, index uint64) []byte {
	return binary.BigEndian.AppendUint64(store.GroupKey(uint64(table), SubID), index)
}

func appendAnswered(keyed bool, id api.RequestID, a *answered) []byte {
	v := append(make([]byte, 0, 64), idFormat)
	v = wire.AppendBool(v, keyed)
	v = append(v, id[:]...)
	v = append(v, a.hash[:]...)
	v = wire.AppendUvarint(v, uint64(a.at))
	v = append(v, byte(a.outcome))
	return wire.AppendUvarint(v, a.version)
}

func decodeAnswered(index uint64, v []byte) (queued, answered, error) {
	r := wire.NewReader(v)
	if f := r.Byte("format"); r.Err() == nil && f != idFormat {
		return queued{}, answered{}, fmt.Errorf("format %d: %w", f, wire.ErrNewer)
	}
	q := queued{index: index, keyed: r.Bool("keyed"), id: r.Array16("request id")}
	a := answered{index: index, hash: r.Array16("hash"), at: time.Duration(r.Uvarint("time"))}
	a.outcome = outcome(r.Byte("outcome"))
	a.version = r.Uvarint("version")
	if r.Err() == nil && a.outcome != outcomeDone && a.outcome != outcomeFailed {
		return queued{}, answered{}, fmt.Errorf("outcome %d: %w", a.outcome, wire.ErrNewer)
	}
	q.at = a.at
	return q, a, r.Done()
}
