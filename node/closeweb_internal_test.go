package node

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/server"
)

// TestTheEndWaitsForAnswers: a request that is under way when the port is closed gets its
// answer, and its connection lives until then.
func TestTheEndWaitsForAnswers(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	came, answer := make(chan struct{}), make(chan struct{})
	n := &node{log: log, server: server.New(server.Options{
		Node: "a", Log: log,
		Identify: func(*tls.ConnectionState) (api.Principal, error) { return api.Principal{Role: api.RoleAdmin}, nil },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(came)
			<-answer
			_, _ = io.WriteString(w, "whole") // the client says whether it got it
		}),
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := n.server.HTTPServer()
	go func() { _ = web.Serve(l) }() // ends below
	got := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + l.Addr().String() + "/metrics")
		if err != nil {
			got <- err.Error()
			return
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			b = []byte(err.Error())
		}
		_ = resp.Body.Close()
		got <- string(b)
	}()
	<-came
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		n.closeWeb(t.Context(), web)
	}()
	select {
	case <-closed:
		t.Error("it did not wait")
	case said := <-got:
		t.Errorf("the connection was cut: %s", said)
	case <-time.After(200 * time.Millisecond):
	}
	close(answer)
	<-closed
	if said := <-got; said != "whole" && !t.Failed() {
		t.Errorf("the answer is %q", said)
	}
}
