package table

import "sync/atomic"

// What the answers of all tables of a node may take in memory together, by lifetime:
// half as much again as those of one table may.
const (
	NodeMadeBytes  = 192 << 20
	NodeKeyedBytes = 384 << 20
)

// near is the part of a Budget that is left when it counts as spent: for what is
// under way, and for what other nodes let in before they are told.
const near = 8

// Budget is what the answers of all tables of a node take in memory, and may take.
// It may be used from any goroutine.
type Budget struct{ made, keyed share }

type share struct {
	max  int64
	used atomic.Int64
}

// NewBudget returns a budget of so many bytes for each lifetime.
func NewBudget(made, keyed int64) *Budget {
	b := &Budget{}
	b.made.max, b.keyed.max = made, keyed
	return b
}

// Spent reports whether hardly any room is left for the answers of a lifetime: keyed,
// or made.
func (b *Budget) Spent(keyed bool) bool {
	s := b.of(keyed)
	return s.used.Load() >= s.max-s.max/near
}

// Bytes returns what the answers of a lifetime take.
func (b *Budget) Bytes(keyed bool) int64 { return b.of(keyed).used.Load() }

func (b *Budget) of(keyed bool) *share { //nolint:revive // keyed is data, not a mode
	if keyed {
		return &b.keyed
	}
	return &b.made
}
