package proctest_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidal/node/api"
)

// target is a node as clients see it.
type target struct {
	name string
	base string      // https://host:port
	tls  *tls.Config // nil: plain
}

// transport is one that keeps connections and leaves answers as they are.
func transport(conf *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig:       conf.Clone(),
		DialContext:           (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		MaxIdleConnsPerHost:   256,
		DisableCompression:    true,
		ResponseHeaderTimeout: 15 * time.Second, // well over the 8 s that a node may take
	}
}

// outcome is what a writer knows of a write.
type outcome uint8

const (
	unsent  outcome = iota // never sent; its key must not exist
	acked                  // 2xx
	refused                // answered, or not delivered: nothing was applied
	unknown                // applied or not
	doubled                // the node says that the row was there: it was applied twice
)

// write is one row sent once.
type write struct {
	table   string
	key     string
	node    string // asked
	at      time.Duration
	took    time.Duration
	outcome outcome
	etag    string // of an acked one
	why     string // of any other
}

// rowValue is the value of a row: it names its row and carries a checksum.
func rowValue(table, key string) []byte {
	s := fmt.Sprintf("%s/%s %s", table, key, strings.Repeat("~", 64))
	return fmt.Appendf(nil, "%s %08x", s, crc32.ChecksumIEEE([]byte(s)))
}

// fleet is writers that behave as clients behind a load balancer: each write, a
// row of its own, goes once to the next node in rotation; rotation is whose
// /health answered 200 when last polled.
type fleet struct {
	targets []target
	rows    []*http.Transport
	up      []atomic.Bool
	began   time.Time
	stopped chan struct{}
	wg      sync.WaitGroup
	writers []*writer
}

// fleetOptions pace a fleet.
type fleetOptions struct {
	tables   []string
	perTable int     // writers on each table
	rate     float64 // writes per second on each table, as long as answers come in time
}

// writer is one client. Its writes are its own until the fleet has stopped.
type writer struct {
	f      *fleet
	id     int
	table  string
	turn   int // of the rotation
	first  time.Duration
	every  time.Duration
	writes []write
}

const healthEvery = 200 * time.Millisecond

// launch starts a fleet once every target is in rotation.
func launch(t *testing.T, targets []target, o fleetOptions) *fleet {
	t.Helper()
	f := &fleet{targets: targets, up: make([]atomic.Bool, len(targets)), stopped: make(chan struct{})}
	for i, tg := range targets {
		f.rows = append(f.rows, transport(tg.tls))
		f.wg.Go(func() { f.watch(i) })
	}
	t.Cleanup(f.stop)
	for i := range targets {
		eventually(t, 10*time.Second, func() error { return f.inRotation(i) })
	}
	f.began = time.Now()
	every := time.Duration(float64(o.perTable) / o.rate * float64(time.Second))
	n := o.perTable * len(o.tables)
	for i := range n {
		w := &writer{f: f, id: i, table: o.tables[i%len(o.tables)], turn: i, every: every}
		w.first = every * time.Duration(i) / time.Duration(n) // spread over one period
		f.writers = append(f.writers, w)
	}
	for _, w := range f.writers {
		f.wg.Go(w.run)
	}
	return f
}

// stop ends the writers after their answers; calling it twice is fine.
func (f *fleet) stop() {
	select {
	case <-f.stopped:
		return
	default:
	}
	close(f.stopped)
	f.wg.Wait()
	for _, tr := range f.rows {
		tr.CloseIdleConnections()
	}
}

// writes are all that was sent, after stop.
func (f *fleet) writes() []write {
	var all []write
	for _, w := range f.writers {
		all = append(all, w.writes...)
	}
	return all
}

// unsent are the rows that the writers would have sent next, after stop, and
// each writer's first in a table that is not its own.
func (f *fleet) unsent(tables []string) []write {
	var all []write
	for i, w := range f.writers {
		for k := range 5 {
			all = append(all, write{table: w.table, key: w.key(len(w.writes) + k)})
		}
		if other := tables[(i+1)%len(tables)]; other != w.table {
			all = append(all, write{table: other, key: w.key(0)})
		}
	}
	return all
}

// inRotation is an error while a node is out of rotation.
func (f *fleet) inRotation(i int) error {
	if !f.up[i].Load() {
		return fmt.Errorf("%s is not in rotation", f.targets[i].name)
	}
	return nil
}

// outOfRotation is an error while a node is in rotation.
func (f *fleet) outOfRotation(i int) error {
	if f.up[i].Load() {
		return fmt.Errorf("%s is still in rotation", f.targets[i].name)
	}
	return nil
}

// watch keeps one node's place in the rotation.
func (f *fleet) watch(i int) {
	tr := transport(f.targets[i].tls)
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: time.Second}
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		res, err := client.Get(f.targets[i].base + "/health")
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		f.up[i].Store(err == nil && res.StatusCode == http.StatusOK)
		select {
		case <-tick.C:
		case <-f.stopped:
			return
		}
	}
}

// next is the node for the next write; false while none is in rotation.
func (w *writer) next() (int, bool) {
	for range w.f.targets {
		w.turn++
		if i := w.turn % len(w.f.targets); w.f.up[i].Load() {
			return i, true
		}
	}
	return 0, false
}

func (w *writer) key(seq int) string { return fmt.Sprintf("w%03d-%07d", w.id, seq) }

func (w *writer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := w.f.began.Add(w.first)
	for { // a writer that is late sends at once
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-w.f.stopped:
			return
		}
		due = due.Add(w.every)
		r := write{table: w.table, key: w.key(len(w.writes)), at: time.Since(w.f.began)}
		i, ok := w.next()
		if ok {
			r.node = w.f.targets[i].name
			w.send(i, &r)
		} else {
			r.outcome, r.why = refused, "no node is in rotation"
			due = time.Now().Add(healthEvery)
		}
		r.took = time.Since(w.f.began) - r.at
		w.writes = append(w.writes, r)
	}
}

// oneShot is a body that net/http cannot send a second time.
type oneShot struct{ io.Reader }

func (oneShot) Close() error { return nil }

// send puts the row if it is not there: a write that the cluster applied twice
// under one answer would be told so.
func (w *writer) send(i int, r *write) {
	value := rowValue(r.table, r.key)
	u, err := url.Parse(w.f.targets[i].base + "/v1/tables/" + r.table + "/rows/" + r.key)
	if err != nil {
		r.outcome, r.why = refused, err.Error()
		return
	}
	res, err := w.f.rows[i].RoundTrip(&http.Request{
		Method: http.MethodPut, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"If-None-Match": {"*"}},
		Body:   oneShot{bytes.NewReader(value)}, ContentLength: int64(len(value)),
	})
	if err != nil {
		r.outcome, r.why = transportOutcome(err), "no answer: "+plainText(err.Error())
		return
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	switch {
	case err != nil:
		r.outcome, r.why = unknown, fmt.Sprintf("%d, then %s", res.StatusCode, plainText(err.Error()))
	case res.StatusCode/100 == 2:
		r.outcome, r.etag = acked, res.Header.Get("ETag")
	default:
		r.outcome, r.why = statusOutcome(res.StatusCode), plainProblem(res, body)
	}
}

// statusOutcome reads an answer as the API promises it.
func statusOutcome(status int) outcome {
	switch {
	case status == http.StatusPreconditionFailed:
		return doubled
	case status == http.StatusBadGateway, status == http.StatusInternalServerError, status < 400:
		return unknown
	}
	return refused
}

// transportOutcome is refused only where nothing can have been delivered.
func transportOutcome(err error) outcome {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return refused
	}
	return unknown
}

func plainProblem(res *http.Response, body []byte) string {
	var p api.Problem
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return fmt.Sprintf("%d %s", res.StatusCode, plainText(string(bytes.TrimSpace(body))))
	}
	route := ""
	if h := res.Header.Get(api.HeaderRouteError); h != "" && h != string(p.Code) {
		route = " (" + api.HeaderRouteError + ": " + h + ")"
	}
	return fmt.Sprintf("%d %s%s: %s", res.StatusCode, p.Code, route, plainText(p.Detail))
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// plainText hides what differs from one error to the next of the same kind.
func plainText(s string) string {
	if s = number.ReplaceAllString(s, "#"); len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}
