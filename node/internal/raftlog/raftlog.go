package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// ErrNoReplica says that the disk holds no replica of the group.
var ErrNoReplica = errors.New("no replica of this group is on the disk")

// entryOverhead is what an entry in memory takes besides its data, in bytes.
const entryOverhead = 96

// Cache bounds the bytes that the log tails of a node hold in memory together.
type Cache struct {
	limit, used int
}

// NewCache returns a bound of so many bytes.
func NewCache(limit int) *Cache { return &Cache{limit: limit} }

// Used returns the bytes held now.
func (c *Cache) Used() int { return c.used }

// HardState is what a replica must not forget: its term, its vote in that term,
// and how far it knows the log to be committed.
type HardState struct {
	Term, Vote, Commit uint64
}

// Applied is how far the state machine has come, and the configuration that the
// entries up to there make. They change in one batch, with the rows.
type Applied struct {
	Index, Term uint64
	Conf        *pb.ConfState
}

// Log is one replica's log and raft state. It implements raft.Storage.
type Log struct {
	db      *store.DB
	group   uint64
	replica uint64
	hard    HardState
	written HardState // what the store has, or a batch under way
	applied Applied

	startIndex, startTerm uint64 // of the entry before the first
	last                  uint64

	cache *Cache
	tail  []*pb.Entry // the newest entries, ending at last
	sizes sizes       // what the entries take on the disk
}

var _ raft.Storage = (*Log)(nil)

// Create writes the first state of a replica into b: an empty log under a
// configuration. The replica exists once b is committed and synced.
func Create(b *store.Batch, group, replica uint64, voters []uint64) error {
	conf := &pb.ConfState{Voters: voters}
	a, err := encodeApplied(Applied{Conf: conf})
	if err != nil {
		return err
	}
	b.Set(store.GroupKey(group, store.SubReplica), binary.AppendUvarint(nil, replica))
	b.Set(store.GroupKey(group, store.SubStart), encodeStart(0, 0))
	b.Set(store.GroupKey(group, store.SubApplied), a)
	return nil
}

// Open reads a replica's state from the store, or returns ErrNoReplica.
func Open(db *store.DB, group uint64, cache *Cache) (*Log, error) {
	l := &Log{db: db, group: group, cache: cache}
	switch err := l.load(); {
	case errors.Is(err, ErrNoReplica):
		return nil, fmt.Errorf("group %d: %w", group, err)
	case err != nil:
		return nil, fmt.Errorf("group %d: %w: %w", group, store.ErrDamaged, err)
	}
	return l, nil
}

// Replica returns the raft id of a group's replica on the disk, or ErrNoReplica.
func Replica(db *store.DB, group uint64) (uint64, error) {
	v, found, err := db.Get(store.GroupKey(group, store.SubReplica))
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, ErrNoReplica
	}
	r := wire.NewReader(v)
	id := r.Uvarint("replica id")
	return id, r.Done()
}

func (l *Log) load() error {
	var err error
	if l.replica, err = Replica(l.db, l.group); err != nil {
		return err
	}
	if err := l.loadRaft(); err != nil {
		return err
	}
	return l.loadLast()
}

func (l *Log) loadRaft() error {
	v, found, err := l.db.Get(store.GroupKey(l.group, store.SubHard))
	if err != nil {
		return err
	}
	if found {
		if l.hard, err = decodeHard(v); err != nil {
			return err
		}
		l.written = l.hard
	}
	v, found, err = l.db.Get(store.GroupKey(l.group, store.SubApplied))
	if err != nil {
		return err
	}
	if !found {
		return errors.New("the applied state is missing")
	}
	if l.applied, err = decodeApplied(v); err != nil {
		return err
	}
	v, found, err = l.db.Get(store.GroupKey(l.group, store.SubStart))
	if err != nil {
		return err
	}
	if !found {
		return errors.New("the start of the log is missing")
	}
	r := wire.NewReader(v)
	l.startIndex, l.startTerm = r.Uvarint("log start index"), r.Uvarint("log start term")
	return r.Done()
}

func (l *Log) loadLast() error {
	l.last = l.startIndex
	l.sizes.reset(l.last)
	lo, hi := store.GroupKey(l.group, store.SubEntry), store.GroupEnd(l.group, store.SubEntry)
	err := l.db.Scan(lo, hi, func(key, value []byte) error {
		l.last = binary.BigEndian.Uint64(key[len(key)-8:])
		l.sizes.add(l.last, entrySize(len(value)))
		return nil
	})
	if err != nil {
		return err
	}
	if l.applied.Index < l.startIndex {
		return fmt.Errorf("the log begins behind entry %d, and only %d are applied", l.startIndex, l.applied.Index)
	}
	if l.applied.Index > l.last || l.hard.Commit > l.last {
		return fmt.Errorf("the log ends at %d, behind commit %d or applied %d", l.last, l.hard.Commit, l.applied.Index)
	}
	return nil
}

// Replica returns the replica's raft id.
func (l *Log) Replica() uint64 { return l.replica }

// Applied returns the newest applied state.
func (l *Log) Applied() Applied { return l.applied }

// Hard returns the newest hard state.
func (l *Log) Hard() HardState { return l.hard }

// SetHard makes h the newest hard state. Append and Apply write it.
func (l *Log) SetHard(h HardState) { l.hard = h }

// WriteHard writes the newest hard state, whole, into b, unless it was written
// before.
func (l *Log) WriteHard(b *store.Batch) {
	if l.hard == l.written {
		return
	}
	l.written = l.hard
	b.Set(store.GroupKey(l.group, store.SubHard), encodeHard(l.hard))
}

// Apply writes into b that the state machine has applied up to a, and that the
// log is committed at least that far: applied beyond commit makes raft panic at
// every start, and a commit that is behind what was applied lets replicas that
// are rolled back behind a membership change elect a second leader.
func (l *Log) Apply(b *store.Batch, a Applied) error {
	v, err := encodeApplied(a)
	if err != nil {
		return err
	}
	b.Set(store.GroupKey(l.group, store.SubApplied), v)
	l.applied = a
	l.hard.Commit = max(l.hard.Commit, a.Index)
	l.WriteHard(b)
	return nil
}

// ApplyWithoutCommit is Apply with the stored commit left behind. It is a defect
// kept for the tests that must find it.
func (l *Log) ApplyWithoutCommit(b *store.Batch, a Applied) error {
	hard := l.hard
	err := l.Apply(b, a)
	l.hard = hard
	l.WriteHard(b)
	return err
}

// ApplyWithoutConf is Apply with the configuration of the Apply before: what is
// stored lags behind by one. It is a defect kept for the tests that must find it.
func (l *Log) ApplyWithoutConf(b *store.Batch, a Applied) error {
	late := a
	late.Conf = l.applied.Conf
	err := l.Apply(b, late)
	l.applied = a
	return err
}

// Append writes entries into b, in place of all that the log has from the first
// one's index on. They may be read from the log once b is committed.
func (l *Log) Append(b *store.Batch, entries []*pb.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	first := entries[0].GetIndex()
	if first <= l.applied.Index || first > l.last+1 {
		return fmt.Errorf("group %d: append at %d to a log of %d entries, %d applied", l.group, first, l.last, l.applied.Index)
	}
	l.sizes.back(first)
	var buf []byte
	for _, e := range entries {
		buf = wire.AppendEntry(buf[:0], e)
		l.sizes.add(e.GetIndex(), entrySize(len(buf)))
		b.Set(store.EntryKey(l.group, e.GetIndex()), buf)
	}
	last := entries[len(entries)-1].GetIndex()
	if l.last > last {
		b.DeleteRange(store.EntryKey(l.group, last+1), store.EntryKey(l.group, l.last+1))
	}
	l.last = last
	l.remember(first, entries)
	return nil
}

func (l *Log) remember(first uint64, entries []*pb.Entry) {
	switch start := l.tailStart(); {
	case first < start:
		l.forget(len(l.tail))
	case first < start+uint64(len(l.tail)):
		keep := int(first - start)
		for _, e := range l.tail[keep:] {
			l.cache.used -= len(e.GetData()) + entryOverhead
		}
		l.tail = l.tail[:keep:keep] // readers may hold what follows
	}
	for _, e := range entries {
		l.cache.used += len(e.GetData()) + entryOverhead
	}
	l.tail = append(l.tail, entries...)
	n := 0
	for over := l.cache.used - l.cache.limit; over > 0 && n < len(l.tail); n++ {
		over -= len(l.tail[n].GetData()) + entryOverhead
	}
	l.forget(n)
}

// forget drops the oldest n entries from memory. The array's front stays until
// the tail next outgrows it, which at most doubles what a tail holds.
func (l *Log) forget(n int) {
	for _, e := range l.tail[:n] {
		l.cache.used -= len(e.GetData()) + entryOverhead
	}
	if l.tail = l.tail[n:]; len(l.tail) == 0 {
		l.tail = nil
	}
}

// Close returns the memory of the log's tail to the cache.
func (l *Log) Close() { l.forget(len(l.tail)) }

func (l *Log) tailStart() uint64 {
	if len(l.tail) == 0 {
		return l.last + 1
	}
	return l.tail[0].GetIndex()
}

// InitialState implements raft.Storage.
func (l *Log) InitialState() (*pb.HardState, *pb.ConfState, error) {
	h := l.hard
	return &pb.HardState{Term: &h.Term, Vote: &h.Vote, Commit: &h.Commit}, l.applied.Conf, nil
}

// Entries implements raft.Storage.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo <= l.startIndex {
		return nil, raft.ErrCompacted
	}
	if hi > l.last+1 {
		return nil, raft.ErrUnavailable
	}
	if start := l.tailStart(); lo >= start {
		return limit(l.tail[lo-start:hi-start:hi-start], maxSize), nil
	}
	out := make([]*pb.Entry, 0, min(hi-lo, 1024))
	size := uint64(0)
	err := l.db.Scan(store.EntryKey(l.group, lo), store.EntryKey(l.group, hi), func(key, value []byte) error {
		index := binary.BigEndian.Uint64(key[len(key)-8:])
		if index != lo+uint64(len(out)) {
			return missing(l.group, lo+uint64(len(out)))
		}
		e, err := wire.DecodeEntry(index, append([]byte(nil), value...))
		if err != nil {
			return err
		}
		if size += uint64(proto.Size(e)); size > maxSize && len(out) > 0 {
			return store.ErrStop
		}
		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, raft.ErrUnavailable
	}
	return out, nil
}

func missing(group, index uint64) error {
	return fmt.Errorf("group %d: %w: entry %d is missing on the disk", group, store.ErrDamaged, index)
}

func limit(entries []*pb.Entry, maxSize uint64) []*pb.Entry {
	size := uint64(0)
	for i, e := range entries {
		if size += uint64(proto.Size(e)); size > maxSize && i > 0 {
			return entries[:i:i]
		}
	}
	return entries
}

// Term implements raft.Storage.
func (l *Log) Term(i uint64) (uint64, error) {
	switch start := l.tailStart(); {
	case i == l.startIndex:
		return l.startTerm, nil
	case i < l.startIndex:
		return 0, raft.ErrCompacted
	case i > l.last:
		return 0, raft.ErrUnavailable
	case i >= start:
		return l.tail[i-start].GetTerm(), nil
	case i == l.applied.Index:
		return l.applied.Term, nil
	}
	v, found, err := l.db.Get(store.EntryKey(l.group, i))
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, missing(l.group, i)
	}
	return wire.EntryTerm(v)
}

// LastIndex implements raft.Storage.
func (l *Log) LastIndex() (uint64, error) { return l.last, nil }

// FirstIndex implements raft.Storage.
func (l *Log) FirstIndex() (uint64, error) { return l.startIndex + 1, nil }

func encodeStart(index, term uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, index), term)
}

func encodeHard(h HardState) []byte {
	b := make([]byte, 0, 24)
	b = binary.AppendUvarint(b, h.Term)
	b = binary.AppendUvarint(b, h.Vote)
	return binary.AppendUvarint(b, h.Commit)
}

func decodeHard(v []byte) (HardState, error) {
	r := wire.NewReader(v)
	h := HardState{Term: r.Uvarint("stored term"), Vote: r.Uvarint("stored vote"), Commit: r.Uvarint("stored commit")}
	return h, r.Done()
}

func encodeApplied(a Applied) ([]byte, error) {
	conf, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.Conf)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	b := make([]byte, 0, 20+len(conf))
	b = binary.AppendUvarint(b, a.Index)
	b = binary.AppendUvarint(b, a.Term)
	return append(b, conf...), nil
}

func decodeApplied(v []byte) (Applied, error) {
	r := wire.NewReader(v)
	a := Applied{Index: r.Uvarint("applied index"), Term: r.Uvarint("applied term"), Conf: &pb.ConfState{}}
	if err := r.Err(); err != nil {
		return Applied{}, err
	}
	if err := proto.Unmarshal(r.Rest(), a.Conf); err != nil {
		return Applied{}, fmt.Errorf("stored configuration: %w", err)
	}
	return a, nil
}
