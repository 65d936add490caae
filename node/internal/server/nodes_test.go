package server_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
)

func TestNodeOrders(t *testing.T) {
	for _, tc := range []struct {
		method, path, body, as string
		status                 int
		to                     string
		action                 api.NodeAction
		order                  api.NodeOrder
		detail                 string
	}{
		{method: "GET", path: "/v1/nodes", as: "reader", status: 200},
		{method: "POST", path: "/v1/node/drain", as: "admin", status: 200, action: api.NodeDrain, order: api.NodeOrder{By: "the-admin"}},
		{
			method: "POST", path: "/v1/node/drain", as: "admin", body: `{"ttl":"10s","epoch":7,"by":"roll"}`, status: 200,
			action: api.NodeDrain, order: api.NodeOrder{TTL: "10s", Epoch: 7, By: "roll"},
		},
		{
			method: "POST", path: "/v1/nodes/b/restart", as: "admin", body: `{"roll":3,"epoch":7}`, status: 202, to: "b",
			action: api.NodeRestart, order: api.NodeOrder{Roll: 3, Epoch: 7, By: "the-admin"},
		},
		{
			method: "POST", path: "/v1/node/restart", as: "admin", body: `{"binary":"` + strings.Repeat("5a", 32) + `"}`, status: 202,
			action: api.NodeRestart, order: api.NodeOrder{Binary: strings.Repeat("5a", 32), By: "the-admin"},
		},
		{method: "POST", path: "/v1/node/restart", as: "admin", body: `{"binary":"5a"}`, status: 400, detail: "want 64 digits"},
		{method: "POST", path: "/v1/node/drain", as: "admin", body: `{"binary":"` + strings.Repeat("5a", 32) + `"}`, status: 400, detail: `drain takes no "binary"`},
		{method: "POST", path: "/v1/node/drain", as: "admin", body: `{"roll":3}`, status: 400, detail: "names no epoch"},
		{method: "POST", path: "/v1/node/undrain", as: "admin:ann", status: 200, action: api.NodeUndrain, order: api.NodeOrder{By: "ann"}},
		{method: "POST", path: "/v1/node/restart", as: "admin", status: 202, action: api.NodeRestart, order: api.NodeOrder{By: "the-admin"}},
		{method: "POST", path: "/v1/nodes/b/restart", as: "admin", status: 202, to: "b", action: api.NodeRestart, order: api.NodeOrder{By: "the-admin"}},
		{method: "POST", path: "/v1/nodes/b/drain", as: "admin", status: 200, to: "b", action: api.NodeDrain, order: api.NodeOrder{By: "the-admin"}},
		{method: "POST", path: "/v1/node/restart", as: "writer", status: 403},
		{method: "POST", path: "/v1/nodes/b/drain", status: 401},
		{method: "GET", path: "/v1/node/drain", as: "admin", status: 405},
		{method: "POST", path: "/v1/nodes/b/state", as: "admin", status: 404},
		{method: "POST", path: "/v1/nodes/b", as: "admin", status: 404},
		{method: "POST", path: "/v1/nodes/B/drain", as: "admin", status: 400, detail: `node id "B"`},
		{method: "POST", path: "/v1/node/drain?ttl=3s", as: "admin", status: 400, detail: "unknown query"},
		{method: "POST", path: "/v1/node/drain", as: "admin", body: `{"ttl":"0s"}`, status: 400, detail: "want 1s to"},
		{method: "POST", path: "/v1/node/drain", as: "admin", body: `{"ttl":"25h"}`, status: 400, detail: "want 1s to"},
		{method: "POST", path: "/v1/node/drain", as: "admin", body: `{"who":1}`, status: 400, detail: `line 1 of the order: unknown field "who"`},
	} {
		g := newRig(t)
		w := g.ask(tc.method, tc.path, tc.body, as(tc.as))
		if w.Code != tc.status || g.to != tc.to || g.action != tc.action || g.order != tc.order {
			t.Errorf("%s %s as %s: %d %q; to %q %s %+v", tc.method, tc.path, tc.as, w.Code, w.Body, g.to, g.action, g.order)
		}
		if w.Code >= 400 && tc.detail != "" {
			if p := problemOf(t, w); !strings.Contains(p.Detail, tc.detail) {
				t.Errorf("%s %s: %q, want %q", tc.method, tc.path, p.Detail, tc.detail)
			}
		}
	}
}

// TestIdle: what may be under way counts, and a connection that has not spoken
// only while it is new.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
		idle := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := g.Idle(time.Second); got != want {
				t.Errorf("%s: idle is %t", when, got)
			}
		}
		idle("without connections", true)
		conn, r := g.serve(t)
		idle("one was just dialed", false)
		<-time.After(time.Second)
		idle("dialed ahead, and silent since", true)
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", rowK)
		<-g.entered
		<-time.After(5 * time.Second)
		idle("a request lasts", false)
		close(g.block)
		if status, _ := answerOf(t, r); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		idle("just answered", true)
	})
}

// TestQuiet: a connection with a request is never quiet, one that just came or
// just spoke is not yet, nor is one when the others begin to close; one that
// closed no longer counts.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
		if !g.Quiet(time.Second) {
			t.Error("without connections")
		}
		conn, r := g.serve(t)
		ask := func(target string, r *bufio.Reader) {
			_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", target)
		}
		quiet := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := g.Quiet(time.Second); got != want {
				t.Errorf("%s: quiet is %t", when, got)
			}
		}
		quiet("just accepted", false)
		<-time.After(time.Second)
		quiet("accepted, and silent for a second", true)
		ask(rowK, r)
		<-g.entered
		<-time.After(5 * time.Second)
		quiet("a request lasts", false)
		close(g.block)
		if status, _ := answerOf(t, r); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		quiet("just answered", false)
		<-time.After(time.Second)
		quiet("silent for a second", true)
		g.Draining()
		quiet("it may be reached for just now", false)
		if g.Settled(time.Second) {
			t.Error("settled while it may be reached for")
		}
		<-time.After(time.Second)
		quiet("nobody reached for it", true)
		if !g.Settled(time.Second) {
			t.Error("not settled though nobody reached for it")
		}
		later, lr := g.serve(t)
		synctest.Wait()
		if !g.Settled(time.Second) {
			t.Error("not settled for one that came later")
		}
		quiet("another came", false)
		_, _ = fmt.Fprint(later, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
		if status, _ := answerOf(t, lr); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		quiet("the other ended with its answer", true)
		ask("/health", r)
		if status, _ := answerOf(t, r); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		synctest.Wait()
		if n := g.Connections(); n != 0 {
			t.Errorf("%d connections after the last answer", n)
		}
		quiet("closed", true)
	})
}
