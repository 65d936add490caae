package node_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tidal/node/api"
)

func (c *trio) events(id, query string) []api.Event {
	c.t.Helper()
	code, body, _ := c.do(http.MethodGet, id, "/cluster/events?follow=false"+query, nil)
	if code != http.StatusOK {
		c.t.Fatalf("events of %s: %d %s", id, code, body)
	}
	var all []api.Event
	for d := json.NewDecoder(bytes.NewReader(body)); d.More(); {
		var e api.Event
		if err := d.Decode(&e); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func tells(list []api.Event, what string) bool {
	return slices.ContainsFunc(list, func(e api.Event) bool { return strings.Contains(e.String(), what) })
}

// TestEvents: a node tells of its own start, its lease and its tables; an id of its
// takes up where it ended, and one of a former life gets all that there is.
func TestEvents(t *testing.T) {
	c := newTrio(t, "a")
	c.start("a")
	c.ready("a")
	if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t", nil); code != http.StatusCreated {
		t.Fatalf("create a table: %d %s", code, body)
	}
	var all []api.Event
	c.await("the table is told", func() (bool, string) {
		all = c.events("a", "")
		return tells(all, "table t created") && tells(all, "table t owned by a"), "not yet"
	})
	for _, what := range []string{"node a: phase serving", "node a is live as a.1.", "metadata led by a"} {
		if !tells(all, what) {
			t.Errorf("nothing says %q: %v", what, all)
		}
	}
	last := all[len(all)-1].ID
	if code, body, _ := c.do(http.MethodDelete, "a", "/v1/tables/t", nil); code != http.StatusNoContent {
		t.Fatalf("drop the table: %d %s", code, body)
	}
	c.await("the end of the table is told", func() (bool, string) {
		later := c.events("a", "&after="+last)
		if tells(later, "created") {
			t.Fatalf("told again: %v", later)
		}
		return tells(later, "table t dropped"), "not yet"
	})
	c.leave("a")
	c.start("a")
	c.ready("a")
	c.await("the lease of the next incarnation is told", func() (bool, string) {
		again := c.events("a", "&after="+last)
		if len(again) == 0 || again[0].Kind == api.EventGap {
			t.Fatalf("after a restart: %v", again)
		}
		return tells(again, "node a is live as a.2."), "not yet"
	})
}
