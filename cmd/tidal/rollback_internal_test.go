package main

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"tidal/node/api"
	"tidal/roll"
)

// rolledBefore is a journal of rolls to binaries, oldest first.
type rolledBefore struct {
	rollJournal

	plans []roll.Options
}

func (j rolledBefore) Rolls(context.Context) ([]api.Roll, error) {
	var out []api.Roll
	for i := range slices.Backward(j.plans) {
		out = append(out, api.Roll{ID: uint64(i + 1)})
	}
	return out, nil
}

func (j rolledBefore) Roll(_ context.Context, id uint64) (api.Roll, error) {
	text, err := json.Marshal(roll.Plan{Options: j.plans[id-1]})
	return api.Roll{ID: id, Plan: text}, err
}

// TestWayBackGoesOn: a way back that was ended in the middle leads back when it is begun
// again, and not to what it undoes; one that is through leads forward.
func TestWayBackGoesOn(t *testing.T) {
	up, back, again := roll.Options{Binary: "new"}, roll.Options{Binary: "old", Back: true}, roll.Options{Binary: "new", Back: true}
	for _, x := range []struct {
		name string
		did  []roll.Options
		runs [3]string
		want string // the binary that the nodes to be rolled run
	}{
		{"an upgrade", []roll.Options{up}, [3]string{"new", "new", "new"}, "new"},
		{"an upgrade in the middle", []roll.Options{up, {}}, [3]string{"new", "old", "old"}, "new"},
		{"a way back", []roll.Options{up, back}, [3]string{"old", "old", "old"}, "old"},
		{"a way back in the middle", []roll.Options{up, back}, [3]string{"old", "new", "new"}, "new"},
		{"a way back that did nothing", []roll.Options{up, back}, [3]string{"new", "new", "new"}, "new"},
		{"the way back of a way back, in the middle", []roll.Options{up, back, again}, [3]string{"new", "old", "old"}, "new"},
		{"the way back of a way back", []roll.Options{up, back, again}, [3]string{"new", "new", "new"}, "new"},
	} {
		all := map[string]api.Programs{}
		for i, sum := range x.runs {
			all[string(rune('a'+i))] = api.Programs{Running: api.Program{SHA256: sum}}
		}
		p, err := (&rolling{cl: rolledBefore{plans: x.did}}).lastUpgrade(t.Context(), all)
		if err != nil || p.Options.Binary != x.want {
			t.Errorf("after %s: %+v, %v; want nodes that run %s to be rolled", x.name, p, err, x.want)
		}
	}
}

// TestKeeps: the way back leads to what was kept, also where another node of the same
// path has gone back already.
func TestKeeps(t *testing.T) {
	older, newer := &api.Program{SHA256: "old"}, &api.Program{SHA256: "new"}
	for name, x := range map[string]struct {
		p    api.Programs
		want *api.Program
	}{
		"an upgrade":             {api.Programs{Running: *newer, Installed: newer, Previous: older}, older},
		"another went back":      {api.Programs{Running: *newer, Installed: older, Previous: newer}, older},
		"never upgraded":         {api.Programs{Running: *newer, Installed: newer}, nil},
		"put back, by hand":      {api.Programs{Running: *newer, Installed: older}, older},
		"nothing is at its path": {api.Programs{Running: *newer}, nil},
	} {
		if got := keeps(&x.p); got != x.want {
			t.Errorf("after %s: %+v, want %+v", name, got, x.want)
		}
	}
}
