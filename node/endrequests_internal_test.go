package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"tidal/node/api"
	"tidal/node/internal/cluster"
	"tidal/node/internal/server"
	"tidal/node/internal/wire"
)

// stuck answers requests for the key "first"; all others wait until they are cut off.
type stuck struct{}

// Do implements server.Rows.
func (stuck) Do(ctx context.Context, req *api.Request) (*api.Response, error) {
	if req.Key == "first" {
		return &api.Response{Found: true, Version: api.Version{Table: 2, Index: 1}}, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// front is a node of which only what answers clients is there.
type front struct {
	*node

	t       *testing.T
	web     *http.Server
	run     context.Context //nolint:containedctx // the node's own
	stop    context.CancelCauseFunc
	address string
}

func newFront(t *testing.T) *front {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	f := &front{t: t, node: &node{log: log, who: cluster.Identity{Incarnation: api.Incarnation{Node: "a", Start: 6}}}}
	f.o.Config.Node.Data = t.TempDir()
	f.server = server.New(server.Options{
		Node: "a", Log: log, Rows: stuck{},
		Identify: func(*tls.ConnectionState) (api.Principal, error) { return api.Principal{Role: api.RoleAdmin}, nil },
		NewID:    newRequest,
		Observe:  func(e server.Event) { f.requests.answered(e, time.Now()) },
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address, f.web = l.Addr().String(), f.server.HTTPServer()
	f.run, f.stop = context.WithCancelCause(t.Context())
	f.under(f.run, f.web)
	go func() { _ = f.web.Serve(l) }() // ends with web
	return f
}

// inFlight waits until so many requests are.
func (f *front) inFlight(want int) {
	f.t.Helper()
	got := 0
	f.await(f.t.Context(), 10*time.Second, func(time.Duration) bool {
		got, _ = f.server.Activity()
		return got == want
	})
	if got != want {
		f.t.Fatalf("%d requests are in flight, want %d", got, want)
	}
}

// dial returns a connection on which that was said.
func (f *front) dial(text string) net.Conn {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, text)
	return conn
}

// heard reads the head of an answer.
func (f *front) heard(conn net.Conn) {
	f.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// lane asks for a row over a lane.
func (f *front) lane() {
	conn := f.dial(askFirst)
	f.heard(conn)
	_, _ = io.WriteString(conn, askStuck)
}

// stream asks for a row over a stream.
func (f *front) stream() {
	conn := f.dial("GET /v1/stream HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: " + wire.ClientProtocol + "\r\n\r\n")
	f.heard(conn)
	q := wire.ClientRequest{Request: api.Request{Op: api.OpGet, Table: "t", Key: "k"}}
	c := wire.Call{ID: 1, Method: wire.ClientRow, Payload: wire.AppendClientRequest(nil, &q)}
	_, _ = conn.Write(wire.AppendFrame(nil, wire.FrameCall, wire.AppendCall(nil, c)))
}

// left is what the next run finds.
func (f *front) left() map[api.Code]uint64 {
	f.t.Helper()
	f.leaveCounts()
	next := f.who.Incarnation
	next.Start++
	before, err := readCounts(vfs.Default, f.countsFile(), next, time.Now())
	if err != nil || before == nil {
		f.t.Fatalf("%+v, %v", before, err)
	}
	return before.Total.Refused
}

const (
	askFirst = "GET /v1/tables/t/rows/first HTTP/1.1\r\nHost: a\r\n\r\n"
	askStuck = "GET /v1/tables/t/rows/k HTTP/1.1\r\nHost: a\r\n\r\n"
	askHalf  = "PUT /v1/tables/t/rows/k HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf"
)

// TestCutIsLeft: requests that the node breaks off as it ends, in order or at once, stand
// among the refused of what it leaves, each once; those of clients that left before do not.
func TestCutIsLeft(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		t.Run(fmt.Sprintf("at once %t", atOnce), func(t *testing.T) {
			f := newFront(t)
			gone := f.dial(askStuck)
			f.inFlight(1)
			_ = gone.Close()
			f.inFlight(0)

			f.dial(askStuck)
			f.dial(askHalf)
			f.lane()
			f.stream()
			f.inFlight(4)

			end, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if atOnce {
				f.stop(errDone)
			}
			began := time.Now()
			f.endRequests(end, f.run, f.web)
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %s", took)
			}
			if diff := cmp.Diff(map[api.Code]uint64{codeCut: 4}, f.left()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAnsweredIsNotCut: what is answered in the last moments is not among the refused.
func TestAnsweredIsNotCut(t *testing.T) {
	f := newFront(t)
	for range 20 {
		f.dial(askFirst)
	}
	f.endRequests(t.Context(), f.run, f.web)
	if refused := f.left(); len(refused) > 0 {
		t.Errorf("%v", refused)
	}
}
