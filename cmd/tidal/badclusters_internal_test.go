package main

import (
	"os"
	"strings"
	"testing"

	"tidal/roll"
	"tidal/roll/generic"
)

// TestBadClusters: a key of a cluster that its kind does not take is an error, and not
// left out without a word.
func TestBadClusters(t *testing.T) {
	const whole = "kind = \"generic\"\njournal = \"rolls.json\"\nready = [\"true\"]\nincarnation = [\"true\"]\nrestart = [\"true\"]\nnodes = { a = { host = \"x\" } }\n"
	for _, x := range []struct {
		name, text, says string
		line             string // "": roll plan
		code             exitCode
	}{
		{name: "a driver", text: whole + "roll = { driver = \"exec\" }", says: "roll.driver and roll.command are of tidal"},
		{name: "a command", text: whole + "roll = { command = \"reboot {node}\" }", says: "roll.driver and roll.command are of tidal"},
		{name: "endpoints", text: whole + "endpoints = [\"http://x:1\"]", says: "has endpoints, which are of tidal"},
		{name: "refusals that nobody counts", text: whole + "roll = { max_refusals = 3 }", says: "has roll.max_refusals, and nobody counts"},
		{name: "such a flag", text: whole, line: "roll plan --max-refusals=0", says: "--max-refusals: nobody counts what x refuses", code: exitUsage},
		{name: "the same before a roll", text: whole, line: "roll --yes --max-refusals=3", says: "--max-refusals: nobody counts what x refuses", code: exitUsage},
		{name: "an empty URL", text: whole + "leader = { url = \"\" }", says: "leader is empty: it needs a url or a command"},
		{name: "an empty probe", text: whole + "version = {}", says: "version is empty: it needs a url or a command"},
		{name: "keys of another kind", text: "endpoints = [\"http://x:1\"]\nquorum = 2\ndrain = \"true\"\ncanary = { command = \"true\" }", says: "has quorum, drain, canary, and its kind takes no such keys"},
		{name: "the same of a kind that is said", text: "kind = \"tidal\"\nendpoints = [\"http://x:1\"]\nundrain = [\"true\"]", says: "has undrain, and its kind"},
		{name: "for any command", text: "endpoints = [\"http://x:1\"]\nprobe_limit = \"1s\"", line: "status", says: "has probe_limit, and its kind"},
	} {
		t.Run(x.name, func(t *testing.T) {
			g := newBadRig(t)
			if err := os.WriteFile("x.toml", []byte("version = 1\ncurrent = \"x\"\n[clusters.x]\n"+x.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			g.env["TIDAL_CONFIG"], g.tree = "x.toml", g.look()
			if x.line == "" {
				x.line = "roll plan"
			}
			if x.code == exitOK {
				x.code = exitConfig
			}
			g.refusesAll(wrong{says: x.says, code: x.code, asks: true}, strings.Fields(x.line)...)
			g.unchanged(x.name)
		})
	}
	for key, s := range map[string]generic.Settings{
		"": {Kind: roll.KindGeneric}, "nodes": {Nodes: map[string]map[string]any{"a": nil}}, "quorum": {Quorum: 1}, "journal": {Journal: "x"}, "ready": {Ready: "x"},
		"incarnation": {Incarnation: "x"}, "version": {Version: "x"}, "leader": {Leader: "x"}, "drain": {Drain: "x"}, "drained": {Drained: "x"}, "undrain": {Undrain: "x"},
		"restart": {Restart: "x"}, "limit": {Limit: "x"}, "probe_limit": {ProbeLimit: "x"}, "canary": {Canary: &generic.CanarySettings{}},
	} {
		if got := strings.Join(s.Keys(), " "); got != key {
			t.Errorf("of %q the keys are %q", key, got)
		}
	}
}
