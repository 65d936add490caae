package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tidal/node/api"
)

func TestWindowQuery(t *testing.T) {
	g := newRig(t)
	w := g.ask("GET", "/cluster/status?sort=-lag&filter=owner%3Da&offset=40&limit=20&follow=00000000000000ff", "", as("reader"))
	q := g.query
	if w.Code != http.StatusOK || q.Sort != "-lag" || q.Filter != "owner=a" || q.Offset != 40 || q.Limit != 20 || q.Follow == nil || *q.Follow != 255 {
		t.Errorf("%d %q: %+v", w.Code, w.Body, q)
	}
	g.ask("GET", "/cluster/status?sort=lag", "", as("reader"))
	if g.query.Limit != api.MaxWindow || g.query.Follow != nil {
		t.Errorf("%+v", g.query)
	}
	for _, bad := range []string{"limit=1001", "limit=-1", "limit=x", "offset=-1", "follow=zz", "colour=red", "sort=a&sort=b"} {
		problemOf(t, g.ask("GET", "/cluster/status?"+bad, "", as("reader")))
	}
	problemOf(t, g.ask("GET", "/cluster/status/local?tables=no", "", as("reader")))
	if w := g.ask("GET", "/cluster/status/local?tables=false", "", as("reader")); w.Code != http.StatusOK {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	problemOf(t, g.ask("GET", "/cluster/events?follow=perhaps", "", as("reader")))
	if w := g.ask("GET", "/cluster/events?follow=false", "", as("")); w.Code != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d", w.Code)
	}
}

func TestEventsOnce(t *testing.T) {
	g := newRig(t)
	w := g.ask("GET", "/cluster/events?follow=false", "", as("reader"))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/x-ndjson" || len(readEvents(t, w.Body.Bytes())) != 1 {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if w := g.ask("HEAD", "/cluster/events", "", as("reader")); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("head: %d %q", w.Code, w.Body)
	}
	g.err = &api.Error{Code: api.CodeBadRequest, Message: "no such id"}
	problemOf(t, g.ask("GET", "/cluster/events?after=x", "", as("reader")))
}

func readEvents(t *testing.T, lines []byte) []api.Event {
	t.Helper()
	var all []api.Event
	d := json.NewDecoder(bytes.NewReader(lines))
	for d.More() {
		var e api.Event
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestEventsFollow: the stream tells what is there, what comes, and that it lives;
// and it ends when the node drains, so that it keeps no stop waiting.
func TestEventsFollow(t *testing.T) {
	g := newRig(t)
	g.more = make(chan struct{})
	web := httptest.NewServer(g.Handler())
	defer web.Close()
	resp, err := web.Client().Get(web.URL + "/cluster/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() (e api.Event) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("the stream ended")
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := next(); e.Kind != api.EventLease {
		t.Errorf("first came %+v", e)
	}
	begun := time.Now()
	if e := next(); e.Kind != api.EventHeartbeat || e.ID != "a.1.00000000/1" || time.Since(begun) > 3*time.Second {
		t.Errorf("then %+v after %v", e, time.Since(begun))
	}
	close(g.more)
	if e := next(); e.Kind != api.EventOwner || g.after != "a.1.00000000/1" {
		t.Errorf("then %+v, asked for what comes after %q", e, g.after)
	}
	g.Draining()
	for lines.Scan() { // heartbeats that were under way
	}
	if lines.Err() != nil {
		t.Error(lines.Err())
	}
}
