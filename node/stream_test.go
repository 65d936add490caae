package node_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/pki"
)

// streaming returns a client with streams to the nodes, as somebody.
func (c *trio) streaming(who string, ids ...string) *client.Client {
	c.t.Helper()
	pair, err := pki.LoadClient(pki.ClientFiles(c.certs, who), time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	o := client.Options{TLS: pair.ClientTLS(time.Second), Streams: true}
	for _, id := range ids {
		o.Endpoints = append(o.Endpoints, c.url(id))
	}
	cl, err := client.New(o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// TestStreams: over streams, too, requests find the owners, roles hold, a node that
// stops refuses nothing, and who is revoked is out.
func TestStreams(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	c.secure()
	p := pki.Plan{Cluster: "test", Nodes: []pki.Node{{ID: "a"}, {ID: "b"}, {ID: "c"}}, Clients: []pki.Client{
		{Name: "r", Role: "reader"}, {Name: "w", Role: "writer"}, {Name: "gone", Role: "writer"},
	}}
	if _, err := pki.Gen(t.Context(), c.certs, p, time.Now()); err != nil {
		t.Fatal(err)
	}
	for id := range c.ports {
		c.start(id)
	}
	for id := range c.ports {
		c.ready(id)
	}
	for i := range 3 {
		if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t"+strconv.Itoa(i), []byte(`{"replicas":3}`)); code/100 != 2 {
			t.Fatalf("%d %s", code, body)
		}
	}
	// It is told of one node, and finds the others.
	w, r, gone := c.streaming("w", "b"), c.streaming("r", "a", "b"), c.streaming("gone", "b")
	for i := range 3 {
		table := "t" + strconv.Itoa(i)
		if _, err := w.Put(t.Context(), table, "k", []byte("v"), client.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.await("the owner is asked itself", func() (bool, string) {
			row, err := w.Get(t.Context(), table, "k", client.ReadOptions{})
			return err == nil && row.Node == row.Owner && string(row.Value) == "v", fmt.Sprintf("%+v, %v", row, err)
		})
	}
	if _, err := r.Put(t.Context(), "t0", "k", []byte("x"), client.WriteOptions{}); api.CodeOf(err) != api.CodeForbidden {
		t.Errorf("a reader writes: %v", err)
	}
	if row, err := r.Get(t.Context(), "t0", "k", client.ReadOptions{}); err != nil || string(row.Value) != "v" {
		t.Errorf("a reader reads: %+v, %v", row, err)
	}
	if _, err := gone.Put(t.Context(), "t0", "k", []byte("v"), client.WriteOptions{}); err != nil {
		t.Errorf("before it is revoked: %v", err)
	}

	// Writers, while a node stops: an attempt that fails is none of a node's refusals.
	var stop atomic.Bool
	var wg sync.WaitGroup
	last := make([]int, 9)
	for i := range last {
		wg.Go(func() {
			for n := 1; !stop.Load(); n++ {
				_, err := w.Put(t.Context(), "t"+strconv.Itoa(i%3), strconv.Itoa(i), []byte(strconv.Itoa(n)), client.WriteOptions{})
				if err != nil {
					t.Errorf("while a node stops: %v", err)
					return
				}
				last[i] = n
			}
		})
	}
	c.leave("a")
	stop.Store(true)
	wg.Wait()
	for i, n := range last {
		row, err := r.Get(t.Context(), "t"+strconv.Itoa(i%3), strconv.Itoa(i), client.ReadOptions{})
		if err != nil || string(row.Value) != strconv.Itoa(n) {
			t.Errorf("the last write of %d is %d, and %q is there: %v", i, n, row.Value, err)
		}
	}

	leaf, err := pki.ReadCert(pki.ClientFiles(c.certs, "gone").Cert)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"serial":%q,"reason":"lost"}`, pki.Serial(leaf))
	if code, answer, _ := c.do(http.MethodPost, "b", "/v1/certs/revoked", []byte(body)); code != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", code, answer)
	}
	c.await("who was revoked is out", func() (bool, string) {
		_, err := gone.Put(t.Context(), "t0", "k", []byte("x"), client.WriteOptions{})
		return err != nil, "it writes"
	})
}
