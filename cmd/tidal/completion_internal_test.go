package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestCompletionOfNames: the cluster on the line is asked for what it has.
func TestCompletionOfNames(t *testing.T) {
	for line, tt := range map[string]struct{ want, asks string }{
		"tables describe ":            {"t", "GET /cluster/status?limit=200&offset=0"},
		"rows get ":                   {"t", "GET /cluster/status?limit=200&offset=0"},
		"rows get t":                  {"t", "GET /cluster/status?filter=%2F%5Et%2F&limit=200&offset=0"},
		"rows get t ":                 {"", ""},
		"tables create ":              {"", ""},
		"node drain ":                 {"a b", "GET /cluster/status?limit=0&offset=0"},
		"rows list t --from ":         {"", ""},
		"tables move t --from b --to": {"--to", ""},
		"tables move t --from b --to ": {
			"a b", "GET /cluster/status?limit=0&offset=0",
		},
	} {
		n := newFakeNode(t)
		var out bytes.Buffer
		words := strings.Split(line, " ")
		words = append([]string{"tidal", "__complete", "--", words[0], words[1], "--endpoint", n.URL}, words[2:]...)
		code := run(t.Context(), words, nil, &out, &out, func(string) (string, bool) { return "", false })
		if got := strings.Join(strings.Fields(out.String()), " "); code != 0 || got != tt.want {
			t.Errorf("%q: exit code %d, %q, want %q", line, code, got, tt.want)
		}
		if got := strings.Join(n.asked, "\n"); got != tt.asks {
			t.Errorf("%q: asked %q, want %q", line, got, tt.asks)
		}
	}
}
