package cluster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

// told returns what a node has told since some number of events.
func (r *running) told(since int) []api.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.events[since:])
}

func (r *running) tells(since int, what string) bool {
	return slices.ContainsFunc(r.told(since), func(e api.Event) bool { return strings.Contains(e.String(), what) })
}

// see returns a window with all tables.
func (r *running) see() api.Status {
	r.n.bed.Helper()
	s, err := r.cluster.Window(r.n.bed.Context(), api.TableQuery{Limit: 100})
	r.n.bed.check(err)
	return s
}

// TestWindowShowsADeath: while the owner of a table dies, the others never show it
// as if it were well, and tell what became of the table and of the lease.
func TestWindowShowsADeath(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		_, _, err := b.at("a").cluster.CreateTable(b.Context(), "t", api.TableSettings{})
		b.check(err)
		b.within(5*time.Second, "the table is served, and everybody is level", func() bool {
			s := b.at("a").see()
			return s.Tables[0].State == api.TableServing && s.Window.Unknown == 0 && s.Window.MaxLag != nil && *s.Window.MaxLag == 0
		})
		s := b.at("a").see()
		first := s.Tables[0]
		for _, r := range first.Replicas {
			if r.Lag == nil || *r.Lag != 0 {
				t.Errorf("the replica on %s: %+v", r.Node, r)
			}
		}
		if first.Frontier == nil || *first.Frontier == 0 || s.Window.Unknown != 0 || s.Window.MaxLag == nil || s.Window.Nodes[first.Owner].Owned != 1 {
			t.Errorf("%+v, %+v", first, s.Window)
		}
		witness := b.at(b.ids[(slices.Index(b.ids, first.Owner)+1)%3])
		since := len(witness.told(0))
		died := time.Now()
		b.nodes[first.Owner].kill()
		b.within(time.Second, "the witness doubts", func() bool { return witness.see().Tables[0].State != api.TableServing })
		b.within(10*time.Second, "another owner", func() bool {
			x := witness.see().Tables[0]
			if x.Owner == first.Owner && x.State != api.TableUnsure && time.Since(died) > time.Second {
				t.Fatalf("%v after its death %s is shown as the owner, %s", time.Since(died), x.Owner, x.State)
			}
			return x.Owner != "" && x.Owner != first.Owner
		})
		b.within(10*time.Second, "the lease ends", func() bool { return witness.tells(since, "node "+first.Owner+" has no lease any more: not renewed") })
		x := witness.see()
		if x.Tables[0].State != api.TableDegraded || x.Window.Unknown != 1 || x.Window.Nodes[first.Owner].Owned != 0 {
			t.Errorf("after the death: %+v, %+v", x.Tables[0], x.Window)
		}
		for _, r := range x.Tables[0].Replicas {
			if (r.Node == first.Owner) == (r.Lag != nil) {
				t.Errorf("the lag on %s: %v", r.Node, r.Lag)
			}
		}
		if !witness.tells(since, "table t from "+first.Owner+" to "+x.Tables[0].Owner+": "+first.Owner+" is silent") {
			t.Errorf("told: %v", witness.told(since))
		}
	})
}

// TestWindowWithoutQuorum: a table that nobody can own is said to be one.
func TestWindowWithoutQuorum(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		_, _, err := b.at("a").cluster.CreateTable(b.Context(), "t", api.TableSettings{})
		b.check(err)
		b.nodes["b"].kill()
		b.within(10*time.Second, "the lease of b ends", func() bool { return !b.at("a").holds("b") })
		b.nodes["c"].kill()
		b.never(2*time.Second, "served without a quorum that is heard", func() bool {
			x := b.at("a").see().Tables[0]
			return x.State == api.TableServing
		})
	})
}

// TestEventsOfADrain: what a drain does is told by those who see it, and nothing
// is told twice.
func TestEventsOfADrain(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		for _, name := range []string{"t1", "t2", "t3", "t4", "t5", "t6"} {
			_, _, err := b.at("a").cluster.CreateTable(b.Context(), name, api.TableSettings{})
			b.check(err)
		}
		a := b.at("a")
		b.within(20*time.Second, "all at their places", func() bool { return a.see().Window.States[api.TableServing] == 6 })
		since := len(a.told(0))
		if a.see().Window.Nodes["b"].Owned == 0 {
			t.Fatal("b owns nothing that it could hand over")
		}
		b.check(b.at("b").cluster.ClaimDrain(api.NodeOrder{By: "me"}, time.Minute))
		b.within(20*time.Second, "b owns nothing", func() bool { return a.see().Window.Nodes["b"].Owned == 0 && a.tells(since, "from b to ") })
		if !a.tells(since, "b drains") || !a.tells(since, "node b hands over what it owns") {
			t.Errorf("told: %v", a.told(since))
		}
		b.check(b.at("b").cluster.ReleaseDrain(api.NodeOrder{}))
		b.within(20*time.Second, "the end is told", func() bool { return a.tells(since, "node b takes tables again") })
		b.within(40*time.Second, "b has its table again", func() bool { return a.tells(since, "to b: to its place") })
		seen := map[string]int{}
		for _, e := range a.told(since) {
			seen[e.String()]++
			if seen[e.String()] > 1 {
				t.Errorf("told twice: %s", e)
			}
		}
	})
}

// TestWindowSortsAndPages: the window holds what the query asks for, and follows a
// table through another order.
func TestWindowSortsAndPages(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		names := []string{"alpha", "beta", "delta", "gamma", "web-1", "web-2"}
		ids := map[string]api.TableID{}
		for _, name := range names {
			x, _, err := b.at("a").cluster.CreateTable(b.Context(), name, api.TableSettings{})
			b.check(err)
			ids[name] = x.ID
		}
		look := func(q api.TableQuery) (got []string, w *api.Window) {
			s, err := b.at("b").cluster.Window(b.Context(), q)
			b.check(err)
			for _, x := range s.Tables {
				got = append(got, x.Name)
			}
			return got, s.Window
		}
		if got, w := look(api.TableQuery{Limit: 2, Offset: 1}); !slices.Equal(got, names[1:3]) || w.Matched != 6 || w.Total != 6 {
			t.Errorf("%v, %+v", got, w)
		}
		if got, _ := look(api.TableQuery{Limit: 2, Sort: "-name"}); !slices.Equal(got, []string{"web-2", "web-1"}) {
			t.Errorf("%v", got)
		}
		if got, w := look(api.TableQuery{Limit: 9, Filter: "web"}); !slices.Equal(got, names[4:]) || w.Matched != 2 || w.Total != 6 {
			t.Errorf("%v, %+v", got, w)
		}
		if got, w := look(api.TableQuery{Limit: 3, Offset: 100}); !slices.Equal(got, names[3:]) || w.Offset != 3 {
			t.Errorf("past the end: %v, %+v", got, w)
		}
		if got, _ := look(api.TableQuery{Limit: 0}); len(got) != 0 {
			t.Errorf("no table was wanted, and there are %v", got)
		}
		for _, sort := range api.TableColumns() {
			up, _ := look(api.TableQuery{Limit: 9, Sort: sort})
			down, _ := look(api.TableQuery{Limit: 9, Sort: "-" + sort})
			if len(up) != 6 || len(down) != 6 {
				t.Errorf("by %s: %v, %v", sort, up, down)
			}
		}
		id := ids["web-1"]
		if got, w := look(api.TableQuery{Limit: 2, Follow: &id}); !slices.Contains(got, "web-1") || w.Offset != 3 {
			t.Errorf("down to web-1: %v, %+v", got, w)
		}
		id = ids["alpha"]
		if got, w := look(api.TableQuery{Limit: 2, Offset: 4, Follow: &id}); got[0] != "alpha" || w.Offset != 0 {
			t.Errorf("up to alpha: %v, %+v", got, w)
		}
		if _, err := b.at("b").cluster.Window(b.Context(), api.TableQuery{Filter: "size>3"}); api.CodeOf(err) != api.CodeBadRequest {
			t.Errorf("an unknown field: %v", err)
		}
	})
}
