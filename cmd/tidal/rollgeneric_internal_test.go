package main

import (
	"bytes"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/roll"
	"tidal/roll/generic"
)

// TestCanaryOfNow: who goes on with a roll asks the canary that the operator's file has
// then, and the gate counts what is asked.
func TestCanaryOfNow(t *testing.T) {
	for name, x := range map[string]struct{ was, now, says string }{
		"the same":   {was: "/bin/sh -c 'ask {attempt}'", now: "ask {attempt}"},
		"none":       {},
		"it is gone": {was: "ask", says: "has no canary any more: whether anybody is refused is not known"},
		"it is new":  {now: "ask", says: "the plan had none, and its failures count"},
		"another":    {was: "ask", now: "other", says: "the plan had another"},
	} {
		s := &generic.Settings{
			Nodes: map[string]map[string]any{"a": {"host": "x"}}, Ready: "true", Incarnation: "true", Restart: "true",
		}
		if x.now != "" {
			s.Canary = &generic.CanarySettings{Command: x.now}
		}
		conf, err := generic.Read("db", s)
		if err != nil {
			t.Fatal(err)
		}
		var talk bytes.Buffer
		w := &rolling{app: &app{stderr: &talk}, tidal: &generic.Cluster{Config: conf}}
		r := &roll.Runner{Plan: &roll.Plan{Kind: roll.KindGeneric, Canary: x.was}, Roll: api.Roll{}}
		w.prepare(r)
		if (r.Canary != nil) != (x.now != "") || (r.Plan.Canary != "") != (x.now != "") {
			t.Errorf("%s: the gate counts those of %q, and asked is one: %t", name, r.Plan.Canary, r.Canary != nil)
		}
		if got := talk.String(); !strings.Contains(got, x.says) || x.says == "" && got != "" {
			t.Errorf("%s: said is %q", name, got)
		}
	}
}
