package raftlog

import (
	"fmt"
	"slices"

	"tidal/node/internal/store"
)

// markStep is how many bytes of entries stand between two marks.
const markStep = 64 << 10

// entrySize is what an entry takes on the disk, with its key, for a stored value
// of so many bytes.
func entrySize(value int) int64 { return int64(value) + 24 }

// sizes knows what a log's entries take on the disk, and roughly where in the log
// that is: a mark every markStep bytes.
type sizes struct {
	marks []mark // in order; the first stands before the log's first entry
	total int64  // up to the last entry, counted as the marks are
}

type mark struct {
	index uint64
	bytes int64 // of the entries up to index, from some beginning
}

// reset begins anew behind an index.
func (s *sizes) reset(index uint64) {
	s.total = 0
	s.marks = []mark{{index: index}}
}

func (s *sizes) add(index uint64, bytes int64) {
	s.total += bytes
	if s.total-s.marks[len(s.marks)-1].bytes >= markStep {
		s.marks = append(s.marks, mark{index, s.total})
	}
}

// back forgets the entries from an index on: they are about to be replaced. It is
// off by less than a step.
func (s *sizes) back(first uint64) {
	n := len(s.marks)
	for n > 1 && s.marks[n-1].index >= first {
		n--
	}
	if n < len(s.marks) {
		s.marks = s.marks[:n]
		s.total = s.marks[n-1].bytes
	}
}

// cut forgets the entries up to an index.
func (s *sizes) cut(index uint64) {
	n, _ := slices.BinarySearchFunc(s.marks, index+1, func(m mark, at uint64) int {
		if m.index < at {
			return -1
		}
		return 1
	})
	at := s.marks[max(n, 1)-1].bytes // n is at least 1: the first mark stands before the first entry
	s.marks = append([]mark{{index, at}}, s.marks[n:]...)
}

// Size returns roughly how many bytes the log takes on the disk.
func (l *Log) Size() int64 { return l.sizes.total - l.sizes.marks[0].bytes }

// Start returns the index of the entry before the log's first.
func (l *Log) Start() uint64 { return l.startIndex }

// Last returns the index of the log's last entry.
func (l *Log) Last() uint64 { return l.last }

// Behind returns the lowest index behind which the log takes no more than so many
// bytes, give or take a step of 64 KiB.
func (l *Log) Behind(bytes int64) uint64 {
	for _, m := range l.sizes.marks {
		if l.sizes.total-m.bytes <= bytes {
			return m.index
		}
	}
	return l.last
}

// Cut writes into b that the log begins behind an index, and removes what stands
// before it. It must not be above what is applied: a log that lacks entries that
// are still to be applied is of no use to anybody. An index that is cut already
// changes nothing.
func (l *Log) Cut(b *store.Batch, index uint64) error {
	if index > l.applied.Index {
		return fmt.Errorf("group %d: cut the log at %d, and %d are applied", l.group, index, l.applied.Index)
	}
	return l.cut(b, index)
}

// CutUnchecked is Cut, also above what is applied. It is a defect kept for the
// tests that must find it.
func (l *Log) CutUnchecked(b *store.Batch, index uint64) error { return l.cut(b, index) }

func (l *Log) cut(b *store.Batch, index uint64) error {
	if index <= l.startIndex {
		return nil
	}
	term, err := l.Term(index)
	if err != nil {
		return fmt.Errorf("group %d: cut the log at %d: %w", l.group, index, err)
	}
	b.DeleteRange(store.EntryKey(l.group, l.startIndex+1), store.EntryKey(l.group, index+1))
	b.Set(store.GroupKey(l.group, store.SubStart), encodeStart(index, term))
	if first := l.tailStart(); first <= index {
		l.forget(int(index - first + 1))
	}
	l.startIndex, l.startTerm = index, term
	if l.sizes.cut(index); index == l.last {
		l.sizes.reset(index)
	}
	return nil
}
