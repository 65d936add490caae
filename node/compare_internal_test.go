package node

import (
	"slices"
	"testing"
	"time"

	"tidal/node/api"
)

// TestComparisonsAreSpread: each table that a node owns is due once an hour, at a time
// of its own, and one that nothing was written to since all its replicas were the same
// is not.
func TestComparisonsAreSpread(t *testing.T) {
	c := comparisons{every: time.Hour, tables: map[api.TableID]compared{}}
	owned := map[api.TableID]uint64{}
	for id := api.TableID(2); id < 1002; id++ {
		owned[id] = 7
	}
	start := time.Unix(0, 0)
	most, times := 0, map[api.TableID]int{}
	for now := start; now.Before(start.Add(3 * time.Hour)); now = now.Add(time.Minute) {
		due := c.due(owned, now)
		most = max(most, len(due))
		for _, id := range due {
			times[id]++
			if id != 500 { // which is always written to
				c.done(id, 7, now)
			} else {
				c.done(id, 6, now)
			}
		}
	}
	if len(times) != 1000 || times[2] != 1 || times[500] < 2 || times[500] > 4 {
		t.Errorf("in three hours %d tables were due, an idle one %d times, a busy one %d times", len(times), times[2], times[500])
	}
	if most > 100 {
		t.Errorf("%d of 1000 were due at once", most)
	}
	delete(owned, 2)
	c.due(owned, start)
	owned[2], owned[3] = 7, 8
	due := c.due(owned, start.Add(6*time.Hour))
	if !slices.Contains(due, 3) || slices.Contains(due, 4) || slices.Contains(due, 2) {
		t.Errorf("after another entry %v are due", due)
	}
	if !slices.Contains(c.due(owned, start.Add(8*time.Hour)), 2) {
		t.Error("a table that was owned again is never due")
	}
}
