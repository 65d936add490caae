package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/server"
)

const putRow = "PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nv"

// laneCases are requests, and whether a lane takes each.
var laneCases = []struct {
	text string
	lane bool
}{
	{getRow, true},
	{putRow, true},
	{"HEAD " + rowK + " HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"DELETE " + rowK + " HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"DELETE " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nv", false},
	{"DELETE " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nv", false},
	{"DELETE " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + strconv.Itoa(5000*len(putRow)) + "\r\n\r\n" + strings.Repeat(putRow, 5000), false},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 3500\r\n\r\n" + strings.Repeat("v", 3500), true},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("v", 5000), false},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nv\r\n0\r\n\r\n", false},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nv\r\n0\r\n\r\n", false},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nv", false},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nv", false},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nv", false},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nv", false},
	{"GET " + rowK + "?consistency=local HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"GET " + rowK + "?no=such HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"PUT " + rowK + "?no=such HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nv", true},
	{"PUT " + rowK + "?no=such HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("v", 300_000), false},
	{"GET " + rowK + "? HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"GET " + rowK + "/%C3%A9%2Fx HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"GET " + rowK + "!*'() HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"GET " + rowK + "%zz HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET " + rowK + "é HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET /v1/tables/NO/rows/k HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"GET /v1/tables/t/rows/ HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"GET http://a" + rowK + " HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nhost: a\r\nX-y:  z \r\nTidal-Timeout: 2s\r\n\r\n", true},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nTidal-Timeout: never\r\n\r\n", true},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"0000000000000002-12\"\r\n\r\n", true},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n", true},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"x\"\r\nIf-None-Match: *\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"a,*,b\"\r\n\r\n", true},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nIf-Match: *\r\n\r\n", true},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/2\r\n\r\nv", true},
	{"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nIdempotency-Key: one\r\n\r\nv", true},
	{"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nIdempotency-Key:\r\n\r\nv", true},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n", true},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a b\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\nnone\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\nHost: a\n\n", false},
	{"GET " + rowK + " HTTP/1.0\r\nHost: a\r\n\r\n", false},
	{"GET " + rowK + " HTTP/2.0\r\nHost: a\r\n\r\n", false},
	{"GET " + rowK + "  HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"get " + rowK + " HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"PATCH " + rowK + " HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET /v1/tables HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET /v1/tables/t/rows HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"POST /v1/tables/t/rows HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", false},
	{"GET " + rowK + " HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("y", 5000) + ": z\r\n\r\n", false},
}

// heard is all that a client hears of a request, and what was handed down for it.
type heard struct {
	status int
	header http.Header
	body   string
	req    api.Request
	open   bool // for another request, which is answered
}

// hear sends a request as the first or the second one of a connection.
func hear(t *testing.T, text string, second bool) (h heard, lane bool) { //nolint:revive // the flag is what the test is about
	t.Helper()
	g := newRig(t)
	g.resp.Value = []byte("value")
	conn, r := g.serve(t)
	if second {
		_, _ = io.WriteString(conn, getRow)
		answerOf(t, r)
		synctest.Wait()
		if g.Lanes() != 1 {
			t.Fatal("the connection is no lane")
		}
	}
	g.req = nil
	go func() { _, _ = io.WriteString(conn, text) }() // all of it may never be read
	method, _, _ := strings.Cut(text, " ")
	answer, err := http.ReadResponse(r, &http.Request{Method: method})
	for err == nil && answer.StatusCode == http.StatusContinue {
		answer, err = http.ReadResponse(r, &http.Request{Method: method})
	}
	if err != nil {
		t.Fatalf("%.80q: %v", text, err)
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		t.Fatalf("%.80q: %v after %q", text, err, body)
	}
	synctest.Wait()
	lane = g.Lanes() == 1
	h = heard{status: answer.StatusCode, header: answer.Header, body: string(body)}
	if g.req != nil {
		h.req = *g.req
		h.req.Deadline = time.Time{}
	}
	if answer.Header.Del("Date"); answer.Close {
		isOver(t, r)
		return h, lane
	}
	_, _ = io.WriteString(conn, getRow)
	again, err := http.ReadResponse(r, nil)
	if err == nil {
		h.open = again.StatusCode == http.StatusOK
		_ = again.Body.Close()
	}
	return h, lane
}

// isOver holds that a connection ends now. net/http may wait half a second for who sends
// on.
func isOver(t *testing.T, r *bufio.Reader) {
	t.Helper()
	start := time.Now()
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) || time.Since(start) > time.Second {
		t.Errorf("the connection ends after %v: %v", time.Since(start), err)
	}
}

// TestLaneAnswers: a lane answers as net/http does, and has net/http answer what is not
// plain.
func TestLaneAnswers(t *testing.T) {
	for _, c := range laneCases {
		synctest.Test(t, func(t *testing.T) {
			want, _ := hear(t, c.text, false)
			got, lane := hear(t, c.text, true)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%.90q\non a lane  %+v\nby net/http %+v", c.text, got, want)
			}
			if lane != c.lane {
				t.Errorf("%.90q: taken by a lane: %v", c.text, lane)
			}
		})
	}
}

// TestLaneAnswersErrors: errors from below are told alike.
func TestLaneAnswersErrors(t *testing.T) {
	for _, e := range []error{
		&api.Error{Code: api.CodeNoOwner, Message: "m", RetryAfter: 1500 * time.Millisecond},
		&api.Error{Code: api.CodePreconditionFailed, Message: "m", At: api.Version{Table: 2, Index: 9}},
		errors.New("internal"),
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			conn, r := g.serve(t)
			_, _ = io.WriteString(conn, getRow)
			answerOf(t, r)
			g.err = e
			_, _ = io.WriteString(conn, putRow)
			lane := say(t, r)
			other, otherR := newRigLike(t, g).serve(t)
			_, _ = io.WriteString(other, putRow)
			if plain := say(t, otherR); lane != plain {
				t.Errorf("on a lane\n%s\nby net/http\n%s", lane, plain)
			}
		})
	}
}

// newRigLike returns another rig whose requests fail as those of one do.
func newRigLike(t *testing.T, g *rig) *rig {
	t.Helper()
	other := newRig(t)
	other.err = g.err
	return other
}

// say returns an answer as text.
func say(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		t.Fatal(err)
	}
	answer.Header.Del("Date")
	return fmt.Sprint(answer.Status, answer.Close, answer.Header, string(body))
}

// TestLaneLargeValue: a value that is longer than what is collected comes whole, and to
// a client that takes its time.
func TestLaneLargeValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.resp.Value = bytes.Repeat([]byte("v"), 300_000)
		conn, r := g.serve(t)
		for range 3 {
			_, _ = io.WriteString(conn, getRow)
			<-time.After(10 * time.Second)
			if status, body := answerOf(t, r); status != http.StatusOK || body != string(g.resp.Value) {
				t.Fatalf("%d, %d bytes", status, len(body))
			}
			<-time.After(100 * time.Second)
			_, _ = io.WriteString(conn, putRow)
			if status, body := answerOf(t, r); status != http.StatusNoContent {
				t.Fatalf("%d %s", status, body)
			}
		}
		if g.Lanes() != 1 {
			t.Error("the connection is no lane")
		}
	})
}

// TestLanePipelined: requests that come in one piece are answered in their order, also
// by net/http.
func TestLanePipelined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, r := g.serve(t)
		go func() {
			_, _ = io.WriteString(conn, getRow+putRow+getRow+"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"+putRow)
		}()
		for i, want := range []int{200, 204, 200, 200, 204} {
			if status, body := answerOf(t, r); status != want {
				t.Errorf("answer %d: %d %s", i, status, body)
			}
		}
		synctest.Wait()
		if g.Lanes() != 0 || g.Connections() != 1 {
			t.Errorf("%d lanes of %d connections: what net/http has it keeps", g.Lanes(), g.Connections())
		}
	})
}

// TestLaneInPieces: a request that comes in pieces is waited for, and its head as long as
// net/http would wait.
func TestLaneInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, r := g.serve(t)
		_, _ = io.WriteString(conn, getRow)
		answerOf(t, r)
		for i := range len(putRow) {
			_, _ = io.WriteString(conn, putRow[i:i+1])
			<-time.After(50 * time.Millisecond)
		}
		if status, body := answerOf(t, r); status != http.StatusNoContent || g.Lanes() != 1 {
			t.Errorf("%d %s, %d lanes", status, body, g.Lanes())
		}
		<-time.After(100 * time.Second)
		start := time.Now()
		go func() {
			for _, b := range []byte("GET " + rowK) {
				if _, err := conn.Write([]byte{b}); err != nil {
					return
				}
				<-time.After(time.Second)
			}
		}()
		_, err := r.ReadByte()
		if took := time.Since(start); !errors.Is(err, io.EOF) || took > 11*time.Second {
			t.Errorf("closed after %v: %v", took, err)
		}
	})
}

// TestLaneBodyLater: a body that comes after its head is waited for; for one that does
// not come, as long as net/http waits after that.
func TestLaneBodyLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, r := g.serve(t)
		head := strings.TrimSuffix(putRow, "v")
		for range 2 {
			_, _ = io.WriteString(conn, head)
			<-time.After(5 * time.Second)
			_, _ = io.WriteString(conn, "w")
			if status, body := answerOf(t, r); status != http.StatusNoContent || string(g.req.Value) != "w" {
				t.Fatalf("%d %s, value %q", status, body, g.req.Value)
			}
			<-time.After(100 * time.Second)
		}
		synctest.Wait()
		if g.Lanes() != 1 {
			t.Error("the connection is no lane")
		}
		_, _ = io.WriteString(conn, head)
		if status, body := answerOf(t, r); status != http.StatusBadRequest || !strings.Contains(body, "too slowly") {
			t.Errorf("%d %s", status, body)
		}
	})
}

// TestLaneKeepsItsClient: on a connection that goes from a lane back to net/http, its client
// is who it was.
func TestLaneKeepsItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		raw, _ := g.many(t, &tls.Config{Certificates: []tls.Certificate{brief(t, 100*time.Hour)}, ClientAuth: tls.RequireAnyClientCert})()
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{named(t, "reader", 100*time.Hour)}})
		r := bufio.NewReader(conn)
		for i, want := range []int{http.StatusOK, http.StatusForbidden, http.StatusForbidden, http.StatusOK} {
			_, _ = io.WriteString(conn, []string{getRow, putRow, "DELETE /v1/tables/t HTTP/1.1\r\nHost: a\r\n\r\n", getRow}[i])
			if status, body := answerOf(t, r); status != want {
				t.Errorf("answer %d: %d %s", i, status, body)
			}
			synctest.Wait()
			if lane := i < 2; (g.Lanes() == 1) != lane {
				t.Errorf("after answer %d: %d lanes", i, g.Lanes())
			}
		}
	})
}

// TestLaneIdle: a lane without a request is closed after its time, and not before.
func TestLaneIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, r := g.serve(t)
		start := time.Now()
		for _, pause := range []time.Duration{0, 5 * time.Second, 119 * time.Second} {
			<-time.After(pause)
			_, _ = io.WriteString(conn, getRow)
			if status, body := answerOf(t, r); status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			start = time.Now()
		}
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if took := time.Since(start); took < 2*time.Minute || took > 131*time.Second {
			t.Errorf("closed after %v", took)
		}
		synctest.Wait()
		if g.Connections() != 0 {
			t.Errorf("%d connections are counted", g.Connections())
		}
	})
}

// TestLaneClientLeft: a client that does not wait for its answer is no error, and the
// wait for its table ends. One that sends its next request meanwhile is answered.
func TestLaneClientLeft(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			conn, r := g.serve(t)
			_, _ = io.WriteString(conn, getRow)
			answerOf(t, r)
			g.block, g.entered = make(chan struct{}), make(chan struct{}, 2)
			_, _ = io.WriteString(conn, getRow)
			<-g.entered
			<-time.After(time.Second)
			if leaves {
				_ = conn.Close()
				synctest.Wait()
				if e := g.events(); len(e) != 2 || e[1].Status != 499 || e[1].Code != "" {
					t.Errorf("events %+v", e)
				}
				if g.log.Len() != 0 || g.Connections() != 0 {
					t.Errorf("log %q, %d connections", g.log.String(), g.Connections())
				}
				return
			}
			go func() { _, _ = io.WriteString(conn, getRow) }()
			<-time.After(time.Second)
			close(g.block)
			for i := range 3 {
				if i == 2 {
					_, _ = io.WriteString(conn, getRow)
				}
				if status, body := answerOf(t, r); status != http.StatusOK {
					t.Errorf("%d %s", status, body)
				}
				<-time.After(time.Second)
			}
			if g.Lanes() != 1 {
				t.Error("the connection is no lane any more")
			}
		})
	}
}

// TestLaneEnds: at the end of the node idle lanes end at once, and one with a request
// under way after its answer, or without when the time is over; there are no more of them.
func TestLaneEnds(t *testing.T) {
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			dial := g.many(t, nil)
			idle, idleR := dial()
			busy, busyR := dial()
			for conn, r := range maps.All(map[net.Conn]*bufio.Reader{idle: idleR, busy: busyR}) {
				_, _ = io.WriteString(conn, getRow)
				answerOf(t, r)
			}
			g.block, g.entered = make(chan struct{}), make(chan struct{}, 2)
			_, _ = io.WriteString(busy, getRow)
			<-g.entered
			if g.Quiet(0) || g.Idle(0) {
				t.Error("quiet while a request is under way")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				g.EndStreams(ctx)
			}()
			isOver(t, idleR)
			<-time.After(time.Second)
			if answered {
				close(g.block)
				if status, body := answerOf(t, busyR); status != http.StatusOK {
					t.Errorf("%d %s", status, body)
				}
			}
			if !answered {
				<-ctx.Done()
			}
			isOver(t, busyR)
			<-ended
			if !answered {
				close(g.block)
			}
			late, lateR := dial()
			_, _ = io.WriteString(late, getRow)
			answerOf(t, lateR)
			synctest.Wait()
			if g.Lanes() != 0 {
				t.Error("a connection became a lane after the end")
			}
		})
	}
}

// TestLaneIsQuiet: a lane is silent between its requests, as other connections are, and
// after Draining its next answer is its last.
func TestLaneIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, r := g.serve(t)
		for range 2 {
			_, _ = io.WriteString(conn, getRow)
			answerOf(t, r)
		}
		if g.Draining(); g.Quiet(time.Second) {
			t.Error("quiet at once")
		}
		<-time.After(time.Second)
		if synctest.Wait(); !g.Quiet(time.Second) || !g.Idle(time.Second) || g.Lanes() != 1 {
			t.Errorf("quiet %v, idle %v, %d lanes", g.Quiet(time.Second), g.Idle(time.Second), g.Lanes())
		}
		_, _ = io.WriteString(conn, getRow)
		if answer := say(t, r); !strings.HasPrefix(answer, "200 OKtrue ") {
			t.Error(answer)
		}
		isOver(t, r)
		late, lateR := g.serve(t)
		_, _ = io.WriteString(late, getRow)
		answerOf(t, lateR)
		isOver(t, lateR)
	})
}

// TestLanePanic: a handler that panics is answered 500, and the connection goes on.
func TestLanePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, r := g.serve(t)
		for _, want := range []int{200, 500, 200} {
			g.panics = want == 500
			_, _ = io.WriteString(conn, getRow)
			if status, body := answerOf(t, r); status != want {
				t.Errorf("%d %s", status, body)
			}
		}
	})
}

// FuzzPlain holds that what a lane reads is what net/http reads.
func FuzzPlain(f *testing.F) {
	for _, c := range laneCases {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, head, ok := server.Plain(b)
		if !ok {
			return
		}
		r := bufio.NewReader(bytes.NewReader(b))
		want, err := http.ReadRequest(r)
		if err != nil {
			t.Fatalf("%q: net/http reads none: %v", b, err)
		}
		rest, _ := io.ReadAll(r)
		if got.Header.Get("Content-Length") == "" {
			want.Header.Del("Content-Length")
		}
		switch {
		case got.Method != want.Method, got.URL.String() != want.URL.String(), got.URL.EscapedPath() != want.URL.EscapedPath(),
			got.URL.RawPath != want.URL.RawPath, got.RequestURI != want.RequestURI, got.Host != want.Host, got.ContentLength != want.ContentLength,
			want.Close, want.TransferEncoding != nil, want.ProtoMajor != 1 || want.ProtoMinor != 1,
			!maps.EqualFunc(got.Header, want.Header, func(a, b []string) bool { return reflect.DeepEqual(a, b) }),
			head != len(b)-len(rest) && want.ContentLength == 0:
			t.Errorf("%q\na lane reads %+v\nnet/http     %+v", b, got, want)
		}
	})
}
