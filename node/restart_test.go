package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"tidal/node"
	"tidal/node/api"
)

// program is what runs after a restart, and what becomes of it.
type program struct {
	node.Program

	check            func() // as long as it takes
	prepare, install failures
	step             func(what string) // before it
}

// failures are what call after call ends with, until there are no more.
type failures chan error

func failing(errs ...error) failures {
	f := make(failures, len(errs))
	for _, err := range errs {
		f <- err
	}
	return f
}

func (f failures) next() error {
	select {
	case err := <-f:
		return err
	default:
		return nil
	}
}

func (p *program) Check(context.Context, string) (api.Program, error) {
	if p.check != nil {
		p.check()
	}
	return api.Program{SHA256: "checked"}, nil
}

func (p *program) Prepare(_, checked string) error {
	if checked != "checked" {
		return fmt.Errorf("%q was not checked", checked)
	}
	if p.step != nil {
		p.step("prepare")
	}
	return p.prepare.next()
}

func (p *program) Install(string) error {
	if p.step != nil {
		p.step("install")
	}
	return p.install.next()
}

// restarts orders a restart of a node, and returns the status of the answer.
func (c *trio) restarts(id string) (status int, body string) {
	c.t.Helper()
	return c.posts(id, "/v1/node/restart", `{}`)
}

func (c *trio) posts(id, path, what string) (status int, body string) {
	c.t.Helper()
	code, b, _ := c.do(http.MethodPost, id, path, []byte(what))
	return code, string(b)
}

// becomes waits until a node has ended for its next run.
func (c *trio) becomes(id string) {
	c.t.Helper()
	select {
	case err := <-c.ctl[id].done:
		next, ok := errors.AsType[*node.RestartError](err)
		if !ok {
			c.t.Fatalf("node %s ended with %v", id, err)
		}
		if err = next.Close(); err != nil {
			c.t.Error(err)
		}
		delete(c.ctl, id)
	case <-time.After(30 * time.Second):
		_, health, _ := c.do(http.MethodGet, id, "/health", nil)
		c.t.Fatalf("node %s does not restart: %s", id, health)
	}
}

// TestRestartWithoutItsBinary: what keeps a binary from its place is found while the node
// can still go on as it was. After that it restarts, with whatever stands there.
func TestRestartWithoutItsBinary(t *testing.T) {
	gone := errors.New("it is gone")
	p := &program{prepare: failing(gone, nil, gone), install: failing(gone)}
	c := newTrio(t, "a")
	c.runs = p
	c.start("a")
	c.ready("a")
	if status, body := c.restarts("a"); status != http.StatusConflict {
		t.Errorf("it cannot be put there: %d %s", status, body)
	}
	if status, body := c.restarts("a"); status != http.StatusAccepted {
		t.Fatalf("restart: %d %s", status, body)
	}
	c.await("it is gone before the node is", func() (bool, string) { return len(p.prepare) == 0, "" })
	c.await("the node goes on, and is told to restart", func() (bool, string) {
		status, body := c.restarts("a")
		return status == http.StatusAccepted, body
	})
	c.becomes("a")
	c.start("a")
	c.ready("a")
}

// socket is a port whose descriptor cannot always be had.
type socket struct {
	*net.TCPListener

	file failures
}

func (s socket) File() (*os.File, error) {
	if err := s.file.next(); err != nil {
		return nil, err
	}
	return s.TCPListener.File()
}

// TestRestartWithoutItsPort: a node whose port cannot be kept says so, and goes on: nobody
// would start a process anew that has ended as if it were told to.
func TestRestartWithoutItsPort(t *testing.T) {
	many := errors.New("too many open files")
	file := failing(many, nil, many)
	c := newTrio(t, "a")
	c.runs = &program{}
	c.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return socket{l.(*net.TCPListener), file}, nil
	}
	c.start("a")
	c.ready("a")
	if status, body := c.restarts("a"); status != http.StatusConflict || !strings.Contains(body, many.Error()) {
		t.Errorf("it cannot be kept: %d %s", status, body)
	}
	if status, body := c.restarts("a"); status != http.StatusAccepted {
		t.Fatalf("restart: %d %s", status, body)
	}
	c.await("it cannot be kept any more", func() (bool, string) { return len(file) == 0, "" })
	c.ready("a")
	c.await("the node goes on, and is told to restart", func() (bool, string) {
		status, body := c.restarts("a")
		return status == http.StatusAccepted, body
	})
	c.becomes("a")
}

// TestRestartWithoutASocket: a port that is no socket cannot outlive the process.
func TestRestartWithoutASocket(t *testing.T) {
	c := newTrio(t, "a")
	c.runs = &program{}
	c.listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
		return struct{ net.Listener }{l}, err
	}
	c.start("a")
	c.ready("a")
	if status, body := c.restarts("a"); status != http.StatusConflict || !strings.Contains(body, "no socket") {
		t.Errorf("restart: %d %s", status, body)
	}
	c.ready("a")
}

// TestStopDuringARestart: whoever tells a node to stop does not wait for the end of a
// restart in place, however slow a client of it is.
func TestStopDuringARestart(t *testing.T) {
	for _, when := range []string{"prepare", "install"} {
		t.Run(when, func(t *testing.T) {
			var steps []string
			stop := make(chan context.CancelFunc, 1)
			c := newTrio(t, "a")
			c.runs = &program{step: func(what string) {
				steps = append(steps, what)
				if len(steps) > 1 && what == when { // the first is the order's
					(<-stop)()
				}
			}}
			c.start("a")
			stop <- c.ctl["a"].stop
			c.ready("a")
			slow, err := net.Dial("tcp", c.ports["a"])
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Close()
			if _, err = slow.Write([]byte("PUT /v1/tables/t/rows/k HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if status, body := c.restarts("a"); status != http.StatusAccepted {
				t.Fatalf("restart: %d %s", status, body)
			}
			if err = <-c.ctl["a"].done; err != nil {
				t.Errorf("it ended with %v", err)
			}
			delete(c.ctl, "a")
			if took := time.Since(begun); took > 8*time.Second {
				t.Errorf("it took %v", took)
			}
			if last := steps[len(steps)-1]; last != when {
				t.Errorf("after the stop came %s", last)
			}
		})
	}
}

// TestClaimEndsDuringTheCheck: a roll whose claim runs out while a binary is checked has
// no node restart: it has taken its tables again.
func TestClaimEndsDuringTheCheck(t *testing.T) {
	c := newTrio(t, "a")
	checked, told := make(chan struct{}), make(chan string, 1)
	c.runs = &program{check: func() { <-checked }}
	c.start("a")
	c.ready("a")
	if status, body := c.posts("a", "/v1/rolls", `{"by":"ann","data":{}}`); status/100 != 2 {
		t.Fatalf("begin a roll: %d %s", status, body)
	}
	if status, body := c.posts("a", "/v1/node/drain", `{"by":"ann","roll":1,"epoch":1,"ttl":"1s"}`); status/100 != 2 {
		t.Fatalf("claim: %d %s", status, body)
	}
	go func() {
		status, body := c.posts("a", "/v1/node/restart", `{"by":"ann","roll":1,"epoch":1}`)
		told <- fmt.Sprint(status, body)
	}()
	c.await("the claim is over", func() (bool, string) {
		_, b, _ := c.do(http.MethodGet, "a", "/cluster/status/local", nil)
		var s api.LocalStatus
		return json.Unmarshal(b, &s) == nil && s.Claim == nil, string(b)
	})
	close(checked)
	if got := <-told; !strings.HasPrefix(got, "409") || !strings.Contains(got, string(api.CodeClaimed)) {
		t.Fatalf("restart: %s", got) // if it has begun, the port is there and nobody answers
	}
	c.ready("a")
}
