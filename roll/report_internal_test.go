package roll

import (
	"strings"
	"testing"

	"tidal/node/api"
)

// TestCounted: what a node counts is added up over its runs: what one counted last comes
// with the next; a reading that is late counts nothing, and what nobody knows is said.
func TestCounted(t *testing.T) {
	run := func(n uint64) api.Incarnation { return api.Incarnation{Node: "a", Start: n, Suffix: 1} }
	counts := func(answered, refused uint64) api.RequestCounts {
		c := api.RequestCounts{Answered: answered}
		if refused > 0 {
			c.Refused = map[api.Code]uint64{api.CodeNoOwner: refused}
		}
		return c
	}
	var x counted
	for _, s := range []struct {
		what              string
		now               api.RequestReport
		answered, refused uint64
		unknown           string
	}{
		{"what was before the roll", api.RequestReport{Incarnation: run(1), Total: counts(10, 1)}, 0, 0, ""},
		{"more", api.RequestReport{Incarnation: run(1), Total: counts(15, 1)}, 5, 0, ""},
		{"an older reading, late", api.RequestReport{Incarnation: run(1), Total: counts(12, 1)}, 5, 0, ""},
		{"the next run, with what the last left", api.RequestReport{
			Incarnation: run(2), Total: counts(3, 0),
			Before: &api.RequestsBefore{Incarnation: run(1), Total: counts(18, 2), ShutMillis: 40},
		}, 11, 1, ""},
		{"the last run, late", api.RequestReport{Incarnation: run(1), Total: counts(18, 2)}, 11, 1, ""},
		{"one was not seen", api.RequestReport{
			Incarnation: run(4), Total: counts(2, 0),
			Before: &api.RequestsBefore{Incarnation: run(3), Total: counts(100, 0), ShutMillis: 90},
		}, 13, 1, "what a.2.00000001 counted last"},
	} {
		x.take(&s.now)
		if x.during.Answered != s.answered || x.during.RefusedSum() != s.refused || !strings.HasPrefix(x.unknown, s.unknown) {
			t.Errorf("%s: %d answered, %d refused, unknown %q; want %d, %d, %q", s.what, x.during.Answered, x.during.RefusedSum(), x.unknown, s.answered, s.refused, s.unknown)
		}
	}
	if x.shut != 40 {
		t.Errorf("the port was shut for %d ms", x.shut)
	}
}
