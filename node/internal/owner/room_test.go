package owner_test

import (
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/owner"
	tables "tidal/node/internal/table"
)

// TestNoRoomForAnswers: a table that remembers as many answers as it may refuses
// new writes of that kind and nothing else, forgets none of them early, and takes
// writes again once they have had their time, though nothing else moves its clock.
func TestNoRoomForAnswers(t *testing.T) {
	for name, keyed := range map[string]bool{"made": false, "keyed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { noRoom(t, keyed) })
		})
	}
}

func noRoom(t *testing.T, keyed bool) { //nolint:revive // keyed is data, not a mode
	t.Helper()
	o, keep := owner.Options{MadeBytes: 300}, tables.KeepMade
	if keyed {
		o, keep = owner.Options{KeyedBytes: 300}, tables.KeepKeyed
	}
	c := newTrioWith(t, o)
	a := c.open("a")
	born := uint64(0)
	write := func(keyed bool, id byte, born uint64) (*api.Response, error) {
		r := request(api.OpPut, "k", "v")
		r.ID, r.Keyed, r.Born = api.RequestID{id}, keyed, api.Position{Table: table, Index: born}
		return a.tables.Execute(t.Context(), table, r)
	}
	first, err := write(keyed, 1, 0)
	c.check(err)
	began := time.Now()
	for id := byte(2); id <= 4; id++ {
		var last *api.Response
		last, err = write(keyed, id, born)
		c.check(err)
		born = last.Version.Index
	}
	_, err = write(keyed, 5, born)
	if e := c.code("a write that finds no room", err, api.CodeTooMany); e.RetryAfter <= 0 {
		t.Error("it does not say when to try again")
	}
	_, err = write(!keyed, 6, born)
	c.check(err)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		again, err := write(keyed, 1, 0)
		if code := api.CodeOf(err); code == api.CodeBehind || code == api.CodeTooMany {
			break // it is forgotten
		}
		if err != nil || again.Version != first.Version {
			t.Fatalf("sent again after %s: %+v, %v", time.Since(began), again, err)
		}
		if _, err = write(keyed, 5, born); err == nil {
			break
		}
		c.code("a write that finds no room yet", err, api.CodeTooMany)
		<-tick.C
	}
	if took := time.Since(began); took < keep || took > keep+3*time.Second {
		t.Errorf("room came after %s, want it after %s", took, keep)
	}
}
