package node

import "testing"

// TestVerdict: what so many free bytes mean, with a reserve of 1,000 and a ballast of 200.
func TestVerdict(t *testing.T) {
	for _, x := range []struct {
		free                  int64
		was, full, drop, fill bool
	}{
		{free: 5000, fill: true},
		{free: 1450, fill: true},
		{free: 1449}, // the ballast would take the node back to where it just left
		{free: 1000},
		{free: 999, full: true},
		{free: 1249, was: true, full: true}, // not back and forth
		{free: 1250, was: true},
		{free: 250, was: true, full: true},
		{free: 249, was: true, full: true, drop: true},
		{free: 0, full: true, drop: true},
	} {
		full, drop, fill := verdict(x.free, 1000, 200, x.was)
		if full != x.full || drop != x.drop || fill != x.fill {
			t.Errorf("%d free, full before: %t: full %t, drop %t, fill %t", x.free, x.was, full, drop, fill)
		}
	}
}
