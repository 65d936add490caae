package node_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// cable lets two nodes not reach each other, both of which reach the others.
type cable struct {
	sync.Mutex
	cut   [2]string // nodes
	conns map[net.Conn][2]string
}

var errCut = errors.New("the cable is cut")

func (k *cable) between(a, b string) bool {
	return k.cut == [2]string{a, b} || k.cut == [2]string{b, a}
}

// dial returns what a node dials with.
func (k *cable) dial(c *trio, from string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		to := ""
		for id, port := range c.ports {
			if port == address {
				to = id
			}
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		k.Lock()
		defer k.Unlock()
		if k.between(from, to) {
			return nil, errors.Join(errCut, conn.Close())
		}
		k.conns[conn] = [2]string{from, to}
		return conn, nil
	}
}

// sever cuts two nodes off from each other.
func (k *cable) sever(a, b string) {
	k.Lock()
	defer k.Unlock()
	k.cut = [2]string{a, b}
	for conn, ends := range k.conns {
		if k.between(ends[0], ends[1]) {
			_ = conn.Close()
		}
	}
}

// TestRelay cuts the owner of a table off from one of the two other nodes. That one
// serves requests all the same, through the third, and the owner stays what it is.
func TestRelay(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	k := &cable{conns: map[net.Conn][2]string{}}
	c.dial = k.dial
	for _, id := range []string{"a", "b", "c"} {
		c.start(id)
	}
	for _, id := range []string{"a", "b", "c"} {
		c.ready(id)
	}
	if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t", []byte(`{"replicas":3}`)); code/100 != 2 {
		t.Fatalf("create: %d %s", code, body)
	}
	before := c.table("a", "t")
	far, third := "a", "b"
	switch before.Owner {
	case "a":
		far, third = "b", "c"
	case "b":
		third = "c"
	}
	k.sever(before.Owner, far)
	for i, began := 0, time.Now(); time.Since(began) < 2*time.Second; i++ {
		sent := time.Now()
		if code, body, _ := c.do(http.MethodPut, far, "/v1/tables/t/rows/k", []byte{byte(i)}); code/100 != 2 {
			t.Fatalf("a write through %s: %d %s", far, code, body)
		}
		if code, body, _ := c.do(http.MethodGet, far, "/v1/tables/t/rows/k", nil); code != http.StatusOK || len(body) != 1 || body[0] != byte(i) {
			t.Fatalf("a read through %s: %d %q, want %q", far, code, body, byte(i))
		}
		if took := time.Since(sent); took > 2*time.Second {
			t.Errorf("a write and a read took %v", took)
		}
	}
	if after := c.table(third, "t"); after.Owner != before.Owner || after.Term != before.Term {
		t.Errorf("%s in term %d became %s in term %d: who is cut off from the owner must not depose it", before.Owner, before.Term, after.Owner, after.Term)
	}
}
