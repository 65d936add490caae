package tui

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"tidal/node/api"
)

// still is a world as a source: it answers what it is.
type still struct {
	Source

	p    Picture
	away bool
}

func (s *still) Endpoints() []string { return []string{"https://nobody", "https://10.0.0.b:8433"} }

func (s *still) Window(_ context.Context, endpoint string, _ api.TableQuery) (api.Status, error) {
	if s.away || endpoint == "https://nobody" {
		return api.Status{}, errAway
	}
	x := *s.p.Status
	x.Tables = tablesOfWorld(x.Window.Total)
	return x, nil
}

func (s *still) Brief(_ context.Context, endpoint string) (api.LocalStatus, error) {
	for node, l := range s.p.Locals {
		if strings.Contains(endpoint, "."+node+":") {
			return l.Status, nil
		}
	}
	return api.LocalStatus{}, errAway
}

// TestOnce: every member is in the report, also one that does not answer, and it says
// what is not well.
func TestOnce(t *testing.T) {
	src := &still{p: newWorld(12).p}
	r, err := Once(t.Context(), src, Options{Cluster: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Degraded || len(r.Nodes) != 5 || len(r.Problems) == 0 {
		t.Errorf("%+v", r)
	}
	for _, n := range r.Nodes {
		away := n.Node == "c" || n.Node == "d"
		if n.Reachable == away || (n.Error != "") != away || (n.Local == nil) != away {
			t.Errorf("%+v", n)
		}
	}
	b, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(b), `"id":"fedcba9876543210"`) {
		t.Errorf("ids are not the same hexadecimal text everywhere: %v", err)
	}
	var text strings.Builder
	if err = r.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"fedcba9876543210", "x down", "! node c down: it has no lease", "注文テーブル", `evil\x1b[2J`} {
		if !strings.Contains(text.String(), what) {
			t.Errorf("%q is not in\n%s", what, text.String())
		}
	}
	if strings.ContainsAny(text.String(), "\x1b\x07") {
		t.Error("an escape sequence is printed")
	}

	src.p = wellWorld().p
	for node, l := range src.p.Locals { // of a time long ago
		l.Status.Certificate = nil
		src.p.Locals[node] = l
	}
	if r, err = Once(t.Context(), src, Options{}); err != nil || r.Degraded || len(r.Problems) != 0 {
		t.Errorf("all is well: %v, %q", err, r.Problems)
	}
	drain := *src.p.Status
	drain.Members = slices.Clone(drain.Members)
	lease := *drain.Members[1].Lease
	lease.Draining = true
	drain.Members[1].Lease = &lease
	src.p.Status = &drain
	if r, err = Once(t.Context(), src, Options{}); err != nil || r.Degraded || len(r.Problems) != 1 {
		t.Errorf("a planned drain: %v, degraded %t, %q", err, r.Degraded, r.Problems)
	}
	src.away = true
	if _, err = Once(t.Context(), src, Options{}); !errors.Is(err, errAway) {
		t.Errorf("nobody is there: %v", err)
	}
}
