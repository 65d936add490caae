package owner_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/owner"
	tables "tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// idCost is what a table counts for an answer.
const idCost = 96

// tidying lets idle tables forget, on all nodes.
func (c *trio) tidying() {
	for _, n := range c.nodes {
		ctx, cancel := context.WithCancel(c.Context())
		done := make(chan error, 1)
		go func() { done <- n.tables.Keep(ctx) }()
		c.Cleanup(func() {
			cancel()
			c.check(<-done)
		})
	}
}

// remembered returns what all nodes remember of both lifetimes together.
func (c *trio) remembered() (bytes int64) {
	for _, n := range c.nodes {
		bytes += n.tables.Remembered(false) + n.tables.Remembered(true)
	}
	return bytes
}

func (n *node) applied() uint64 {
	l, _ := n.tables.Local(table)
	return l.Applied
}

// TestIdleTablesForget: a table that nobody writes to forgets all its answers, with
// one entry once the last of them is past its lifetime, and has no entry after that.
// What is sent again then is not done.
func TestIdleTablesForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTrio(t, 0)
		c.tidying()
		a := c.open("a")
		var last *api.Response
		for i := range 100 {
			r := request(api.OpPut, "k", fmt.Sprint(i))
			if last != nil {
				r.Born = last.Version
				r.Born.Table = table
			}
			resp, err := a.tables.Execute(t.Context(), table, r)
			c.check(err)
			last = resp
		}
		c.await("all nodes remember all", func() bool { return c.remembered() == 3*100*idCost })
		wrote, began := a.applied(), time.Now()
		wait := time.NewTicker(time.Second)
		defer wait.Stop()
		for c.remembered() > 0 && time.Since(began) < time.Hour {
			<-wait.C
		}
		if took := time.Since(began); took < tables.KeepMade || took > tables.KeepMade+10*time.Second {
			t.Errorf("all is forgotten after %s, want it a little after %s", took, tables.KeepMade)
		}
		if n := a.applied() - wrote; n != 1 {
			t.Errorf("that took %d entries, want 1", n)
		}
		for end := time.Since(began) + 2*tables.KeepMade; time.Since(began) < end; {
			<-wait.C
		}
		if n := a.applied() - wrote; n != 1 {
			t.Errorf("a minute later there were %d entries, want 1", n)
		}
		r := request(api.OpPut, "k", "0")
		_, err := a.tables.Execute(t.Context(), table, r)
		c.code("sent again", err, api.CodeBehind)
	})
}

// TestTableThatWasBusyForgets: a table that had many writes, and has one now and then,
// does not keep the answers of the many for as long as such writes come.
func TestTableThatWasBusyForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTrio(t, 0)
		c.tidying()
		a := c.open("a")
		writes := 0
		write := func() {
			r := request(api.OpPut, "k", fmt.Sprint(writes))
			r.Born = api.Position{Table: table, Index: 1 << 40}
			_, err := a.tables.Execute(t.Context(), table, r)
			c.check(err)
			writes++
		}
		for range 150 {
			write()
		}
		for range 2 { // the second one comes when the many are past their lifetime
			<-time.After(tables.KeepMade/2 + time.Second)
			write()
		}
		<-time.After(10 * time.Second)
		for id, n := range c.nodes {
			if left := n.tables.Remembered(false); left != 2*idCost {
				t.Errorf("node %s remembers %d answers, want 2", id, left/idCost)
			}
		}
		wrote := a.applied()
		<-time.After(10 * time.Second)
		if n := a.applied() - wrote; n != 0 {
			t.Errorf("with nothing to forget there are %d entries", n)
		}
	})
}

// TestNodeHasNoRoomForAnswers: all tables of a node together remember no more than it
// may. What is refused says so, tables with room of their own among it, and a table
// that is dropped gives back what it took.
func TestNodeHasNoRoomForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTrioWith(t, owner.Options{NodeMadeBytes: 8 * idCost})
		c.tidying()
		a := c.open("a")
		const other = api.TableID(3)
		for _, n := range c.nodes {
			second := info(other)
			second.Name, second.First = "other", []uint64{21, 22, 23}
			second.Replicas = []wire.Replica{{Node: "a", ID: 21, Voter: true}, {Node: "b", ID: 22, Voter: true}, {Node: "c", ID: 23, Voter: true}}
			c.check(n.tables.Open(t.Context(), second))
		}
		a.host.Campaign(uint64(other))
		c.await("a owns the other table", func() bool { l, _ := a.tables.Local(other); return l.State.Owns })
		for i := range 7 {
			_, err := a.tables.Execute(t.Context(), table, request(api.OpPut, "k", fmt.Sprint(i)))
			c.check(err)
		}
		if !a.tables.Spent(false) || a.tables.Spent(true) {
			t.Fatalf("of 8 answers 7 are there, and it is %t and %t", a.tables.Spent(false), a.tables.Spent(true))
		}
		_, err := a.tables.Execute(t.Context(), other, request(api.OpPut, "k", "x"))
		if e := c.code("a write to another table", err, api.CodeTooMany); e.RetryAfter <= 0 || e.Message[:6] != "node a" {
			t.Errorf("it says %q, and to try again after %s", e.Message, e.RetryAfter)
		}
		keyed := request(api.OpPut, "k", "keyed")
		keyed.Keyed = true
		_, err = a.tables.Execute(t.Context(), other, keyed)
		c.check(err)
		_, err = a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "6"))
		c.check(err) // it was answered
		began := time.Now()
		wait := time.NewTicker(time.Second)
		defer wait.Stop()
		for a.tables.Spent(false) && time.Since(began) < time.Hour {
			<-wait.C
		}
		if took := time.Since(began); took < 20*time.Second || took > tables.KeepMade+10*time.Second {
			t.Errorf("there is room after %s", took)
		}
		r := request(api.OpPut, "k", "x")
		r.Born = api.Position{Table: other, Index: 1 << 40}
		_, err = a.tables.Execute(t.Context(), other, r)
		c.check(err)
		if a.tables.Remembered(false) == 0 || a.tables.Remembered(true) == 0 {
			t.Error("nothing is remembered")
		}
		c.check(a.tables.Drop(t.Context(), other))
		if n := a.tables.Remembered(false) + a.tables.Remembered(true); n != 0 {
			t.Errorf("the table is gone, and %d bytes are remembered", n)
		}
	})
}

// TestOtherNodeHasNoRoomForAnswers: an owner lets nothing in that another replica's
// node has no room for.
func TestOtherNodeHasNoRoomForAnswers(t *testing.T) {
	spent := ""
	c := newTrioWith(t, owner.Options{Spent: func(id api.TableID, keyed bool) string {
		if id != table || keyed {
			return ""
		}
		return spent
	}})
	a := c.open("a")
	_, err := a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "0"))
	c.check(err)
	spent = "b"
	_, err = a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "1"))
	if e := c.code("a write that b has no room for", err, api.CodeTooMany); e.Message[:6] != "node b" {
		t.Errorf("it says %q", e.Message)
	}
	_, err = a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "0"))
	c.check(err)
}
