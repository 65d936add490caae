package proctest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

// process is what one more `tidal serve` beside a cluster is told to be.
type process struct {
	id, name, data string
	single         bool
}

// beside makes a process that is not started yet. It has a port of its own, knows the
// cluster's members, and is called at its own address.
func (c *cluster) beside(t *testing.T, p process) *node {
	t.Helper()
	n := &node{id: p.id, listen: freePorts(t, 1)[0]}
	n.config = filepath.Join(c.dir, strings.ReplaceAll(n.listen, ":", "-")+".toml")
	n.logFile = n.config + ".log"
	var b strings.Builder
	fmt.Fprintf(&b, "[node]\nid = %q\ndata = %q\nlisten = %q\nadvertise = %q\n[cluster]\nname = %q\n[cluster.members]\n", p.id, p.data, n.listen, "http://"+n.listen, p.name)
	fmt.Fprintf(&b, "%s = %q\n", p.id, "http://"+n.listen)
	for _, m := range c.nodes {
		if m.id != p.id && !p.single {
			fmt.Fprintf(&b, "%s = %q\n", m.id, c.scheme()+m.member.addr())
		}
	}
	if err := os.WriteFile(n.config, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	return n
}

// ask asks a process that is no node of the cluster's list.
func ask(n *node, path string, into any) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.listen+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	return res.StatusCode, json.NewDecoder(res.Body).Decode(into)
}

// says is an error unless a process is not ready and says why.
func says(n *node, reason string) error {
	var h api.Health
	status, err := ask(n, "/health", &h)
	if err != nil {
		return err
	}
	for _, r := range h.Reasons {
		if status == http.StatusServiceUnavailable && strings.Contains(r.Detail, reason) {
			return nil
		}
	}
	return fmt.Errorf("%s: /health %d %+v: want %q", n.id, status, h.Reasons, reason)
}

// lists is an error unless a node lists the refusal of a node for a reason.
func lists(by *node, refused, reason string) error {
	var s api.Status
	if _, err := ask(by, "/cluster/status", &s); err != nil {
		return err
	}
	for _, r := range s.Refusals {
		if r.Node == refused && strings.Contains(r.Reason, reason) {
			return nil
		}
	}
	return fmt.Errorf("%s lists %+v: want %s, %q", by.id, s.Refusals, refused, reason)
}

// tells is an error unless a node tells the event that a node is refused for a reason.
func tells(by *node, refused, reason string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+by.listen+"/cluster/events?follow=false", http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	return toldOf(by, res.Body, refused, reason)
}

// toldOf is an error unless the events that a node tells have a refusal.
func toldOf(by *node, events io.Reader, refused, reason string) error {
	var told []string
	for d := json.NewDecoder(events); ; {
		var e api.Event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return fmt.Errorf("%s tells of %q: want %s, %q", by.id, told, refused, reason)
		} else if err != nil {
			return err
		}
		if e.Kind != api.EventNodeRefused {
			continue
		}
		told = append(told, e.String())
		if e.Member == refused && strings.Contains(e.Why, reason) {
			return nil
		}
	}
}

// isRefused waits until a process says that it is refused, a node of the cluster
// lists it and has said so in its log and in an event, and a row request to it is
// answered in kind.
func (c *cluster) isRefused(t *testing.T, n *node, reason string) {
	t.Helper()
	eventually(t, 120*time.Second, func() error { return says(n, reason) })
	// One refusal is enough: then it talks to nobody.
	by := c.nodes[0]
	eventually(t, 20*time.Second, func() error {
		err := lists(by, n.id, reason)
		if err != nil {
			by = c.nodes[1-slices.Index(c.nodes, by)]
		}
		return errors.Join(err, lists(n, n.id, reason))
	})
	eventually(t, 20*time.Second, func() error { return errors.Join(tells(by, n.id, reason), tells(n, n.id, reason)) })
	log, err := os.ReadFile(by.logFile)
	if err != nil || !strings.Contains(string(log), "node refused") || !strings.Contains(string(log), reason) {
		t.Errorf("the log of %s does not say that it refuses %s: %q, %v", by.id, n.id, reason, err)
	}
	var p api.Problem
	if status, err := ask(n, "/v1/tables/t0/rows/early", &p); status != http.StatusServiceUnavailable || p.Code != api.CodeWrongDisk {
		t.Errorf("a read from %s: %d %+v, %v", n.id, status, p, err)
	}
	if code, out := c.tidal(t, c.asAdminAt([]*node{n}, "status")...); code != 10 || !strings.Contains(out, reason) {
		t.Errorf("tidal status of %s ends with %d:\n%s", n.id, code, out)
	}
}

// ends starts a process that must end at once.
func ends(t *testing.T, n *node, code int, says string) {
	t.Helper()
	n.start(t, "")
	select {
	case <-n.gone:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s still runs: want %q", n.id, says)
	}
	if got := n.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(n.tail(5), says) {
		t.Errorf("exit %d, want %d and %q:\n%s", got, code, says, n.tail(5))
	}
}

func (c *cluster) data(id string) string { return filepath.Join(c.dir, id) }

func (c *cluster) copyData(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(c.data(to), os.DirFS(c.data(from))); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(c.data(from), c.data(to)); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) putRow(t *testing.T, key string) {
	t.Helper()
	eventually(t, 60*time.Second, func() error {
		a, err := c.call(0, http.MethodPut, "/v1/tables/t0/rows/"+key, key, nil)
		if err == nil && a.status/100 != 2 {
			err = fmt.Errorf("put %s: %s", key, a)
		}
		return err
	})
}

// TestWrongDisks goes through the data directories that a node must not run on, with
// real processes: each is refused, both sides say why, and the way out works.
func TestWrongDisks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{plain: true})
	c.startAll(t)
	c.createTables(t, 1)
	c.putRow(t, "early")
	third := c.nodes[2]

	ends(t, c.beside(t, process{id: "n3", name: "test", data: c.data("n3")}), 9,
		fmt.Sprintf("in use: %s by process %d", c.data("n3"), third.cmd.Process.Pid))

	if err := third.stop(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	ends(t, c.beside(t, process{id: "n9", name: "test", data: c.data("n3")}), 3, `the data directory belongs to node "n3", and the configuration says "n9"`)
	ends(t, c.beside(t, process{id: "n3", name: "prod", data: c.data("n3")}), 3, `and the configuration says "prod"`)
	c.copyData(t, "n3", "copy")
	c.copyData(t, "n3", "older")

	// A copy, beside the original.
	third.start(t, "")
	eventually(t, 60*time.Second, func() error { return c.health(2) })
	twin := c.beside(t, process{id: "n3", name: "test", data: c.data("copy")})
	twin.start(t, "")
	c.isRefused(t, twin, "with the same start number: it is a copy of that one, or an older state of it")
	twin.kill()
	if err := c.health(2); err != nil {
		t.Errorf("the original suffers from its copy: %v", err)
	}

	// An older state, after the node has run on; then its newest again.
	c.putRow(t, "late")
	for range 2 {
		third.kill()
		third.start(t, "")
		eventually(t, 60*time.Second, func() error { return c.health(2) })
	}
	third.kill()
	older := c.beside(t, process{id: "n3", name: "test", data: c.data("older")})
	older.start(t, "")
	c.isRefused(t, older, "is older than the one that r")
	older.kill()
	ends(t, c.beside(t, process{id: "n3", name: "test", data: c.data("older")}), 3, "is older than the one that r")
	third.start(t, "")
	eventually(t, 60*time.Second, func() error { return c.health(2) })

	// A disk that is gone, and then found again.
	third.kill()
	c.rename(t, "n3", "lost")
	third.start(t, "")
	eventually(t, 60*time.Second, func() error { return says(third, "`tidal node replace n3` lets it back in") })
	eventually(t, 60*time.Second, func() error {
		const reason = "and comes with the empty disk"
		err := errors.Join(lists(c.nodes[0], "n3", reason), tells(c.nodes[0], "n3", reason))
		if err != nil {
			err = errors.Join(lists(c.nodes[1], "n3", reason), tells(c.nodes[1], "n3", reason))
		}
		return err
	})
	eventually(t, 60*time.Second, func() error {
		if code, out := c.tidal(t, c.asAdminAt(c.nodes[:1], "node", "replace", "n3", "--yes")...); code != 0 {
			return fmt.Errorf("exit %d: %s", code, out)
		}
		return nil
	})
	eventually(t, 60*time.Second, func() error { return c.health(2) })
	lost := c.beside(t, process{id: "n3", name: "test", data: c.data("lost")})
	lost.start(t, "")
	c.isRefused(t, lost, "was replaced, and is dead for ever")
	lost.kill()

	// Nodes of other clusters.
	named := c.beside(t, process{id: "n3", name: "other", data: c.data("named")})
	named.start(t, "")
	eventually(t, 60*time.Second, func() error { return says(named, `node n3 is of cluster "other", node n1 of cluster "test"`) })
	eventually(t, 60*time.Second, func() error {
		return errors.Join(lists(c.nodes[0], "n3", `is of cluster "other"`), tells(c.nodes[0], "n3", `is of cluster "other"`))
	})
	named.kill()
	alone := c.beside(t, process{id: "n3", name: "test", data: c.data("alone"), single: true})
	alone.start(t, "")
	eventually(t, 60*time.Second, func() error { return isOK(alone) })
	alone.kill()
	third.kill()
	c.rename(t, "n3", "kept")
	c.rename(t, "alone", "n3")
	third.start(t, "")
	eventually(t, 60*time.Second, func() error {
		const reason = "one of the two data directories is another cluster's"
		return errors.Join(lists(c.nodes[0], "n1", reason), lists(third, "n1", reason), tells(third, "n1", reason))
	})
	third.kill()
	c.rename(t, "n3", "alone")
	c.rename(t, "kept", "n3")
	third.start(t, "")
	eventually(t, 60*time.Second, func() error { return c.health(2) })
	for _, row := range []string{"early", "late"} {
		a := c.must(t, 2, http.MethodGet, "/v1/tables/t0/rows/"+row, "", nil)
		if string(a.body) != row {
			t.Errorf("row %s: %s", row, a)
		}
	}

	// A newer format; and a copy that was started first: then the original is refused.
	third.kill()
	c.copyData(t, "n3", "first")
	format := filepath.Join(c.data("n3"), "FORMAT")
	was, err := os.ReadFile(format)
	if err == nil {
		err = os.WriteFile(format, []byte("4711\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	ends(t, third, 3, "the data is of format 4711, this binary reads up to format ")
	if err = os.WriteFile(format, was, 0o600); err != nil {
		t.Fatal(err)
	}
	first := c.beside(t, process{id: "n3", name: "test", data: c.data("first")})
	first.start(t, "")
	eventually(t, 60*time.Second, func() error { // nobody calls it where it is, but it calls
		if log, err := os.ReadFile(first.logFile); err != nil || !strings.Contains(string(log), "connected to peer") {
			return errors.Join(errors.New("the copy has met nobody"), err)
		}
		return nil
	})
	third.start(t, "")
	c.isRefused(t, third, "with the same start number: it is a copy of that one, or an older state of it")
}

func isOK(n *node) error {
	var h api.Health
	status, err := ask(n, "/health", &h)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: /health %d %+v", n.id, status, h.Reasons)
	}
	return err
}

// TestWrongAuthority runs a node on certificates of another authority, with the same
// names: both sides say so, and with its own ones it is back.
func TestWrongAuthority(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{direct: true})
	c.startAll(t)
	third := c.nodes[2]
	third.kill()
	other := filepath.Join(c.dir, "other")
	if code, out := c.tidal(t, "certs", "gen", "--dir", other, "--cluster", "test", "--node", "n3=127.0.0.1"); code != 0 {
		t.Fatalf("certs gen: %d: %s", code, out)
	}
	good, err := os.ReadFile(third.config)
	if err == nil {
		err = os.WriteFile(third.config, bytes.ReplaceAll(good, []byte(c.certs()), []byte(other)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	third.start(t, "")
	const reason = "certificate signed by unknown authority"
	eventually(t, 60*time.Second, func() error {
		a := c.must(t, 0, http.MethodGet, "/cluster/events?follow=false", "", nil)
		return toldOf(c.nodes[0], bytes.NewReader(a.body), "n3", reason)
	})
	eventually(t, 60*time.Second, func() error {
		for n, certs := range map[*node]string{c.nodes[0]: c.certs(), third: other} {
			args := append([]string{"status", "--endpoint", "https://" + n.listen}, asClient(certs, "admin")...)
			if code, out := c.tidal(t, args...); code != 10 || !strings.Contains(out, reason) || !strings.Contains(out, "tidal certs") {
				return fmt.Errorf("tidal status of %s ends with %d:\n%s", n.id, code, out)
			}
		}
		return nil
	})
	third.kill()
	if err = os.WriteFile(third.config, good, 0o600); err != nil {
		t.Fatal(err)
	}
	third.start(t, "")
	eventually(t, 60*time.Second, func() error { return c.health(2) })
}
