package owner

import (
	"context"
	"time"
)

// How tables are looked after.
const (
	keepEvery  = time.Second     // between two looks
	tidyLooks  = 5               // looks between two for tables that nobody writes to
	tidyMargin = time.Second     // after the last answer is past its lifetime
	tidyAtOnce = 64              // entries in one look: each wakes a group
	tidyTime   = 2 * time.Second // for the entry of one table
)

// Keep hands over what this node leads with fenced replicas, and lets the tables that
// it owns forget their answers when nobody writes to them any more, until ctx ends.
// The clock of such a table stands still, so one entry without a command moves it, once
// all answers are past their lifetime, and they go all at once. A table that is written
// to now and then, and was more often, gets entries until those are forgotten that are
// past their lifetime. One with nothing to forget is left alone.
func (t *Tables) Keep(ctx context.Context) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		t.evade(ctx)
		if looks%tidyLooks == 0 {
			t.tidy(ctx)
		}
	}
}

func (t *Tables) tidy(ctx context.Context) {
	done := 0
	for _, r := range t.ordered() {
		for t.untidy(r) {
			limited, cancel := context.WithTimeout(ctx, tidyTime)
			err := t.Mark(limited, r.info.ID)
			cancel()
			// One that failed is tried again: whatever became of it, it did no harm.
			if done++; done == tidyAtOnce || err != nil {
				return
			}
		}
	}
}

// untidy reports whether this node owns a table that has more to forget than the last
// entry could, or whose answers have all been past their lifetime since a while, for
// want of anything that moves its clock.
func (t *Tables) untidy(r *replica) bool {
	m := r.table.Load()
	lasts := m.Lasts()
	switch {
	case lasts == 0 || !r.state.Load().Owns:
		return false
	case m.Past():
		return true
	}
	moved := max(time.Duration(r.gauge.Moved.Load()), r.opened)
	return t.o.Host.Clock()-moved >= lasts+tidyMargin
}
