package main

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// badFile is a line that reads FILE, and how it ends with files that are none of its
// kind.
type badFile struct {
	line string
	code exitCode
	but  map[string]exitCode // for some; exitOK: such a file is right
}

func badFiles() []badFile {
	const (
		node   = " --tls-ca=certs/bundle.crt --tls-cert=certs/nodes/a/tls.crt --tls-key=certs/nodes/a/tls.key"
		client = "--endpoint=https://127.0.0.1:1 --ca=certs/bundle.crt --cert=certs/clients/admin/tls.crt --key=certs/clients/admin/tls.key"
	)
	instead := func(line, file string) string { return strings.Replace(line, file, "FILE", 1) }
	// It lists them, broken or not.
	judged := map[string]exitCode{"certs": exitOK, "empty": exitOK, "text": exitOK, "cut": exitOK, "/proc/self/mem": exitOK}
	lines := []badFile{
		{line: "config explain --config=FILE", code: exitConfig, but: map[string]exitCode{"empty": exitOK}},
		{line: "serve --check --config=FILE", code: exitConfig, but: map[string]exitCode{"empty": exitOK}},
		{line: "rows load t FILE", code: exitFailed, but: map[string]exitCode{"nowhere": exitUsage, "text/x": exitUsage}},
		{line: "roll --plan=FILE --yes", code: exitConfig},
		{line: "roll stage --binary=FILE", code: exitConfig, but: map[string]exitCode{"text": exitOK, "cut": exitOK}}, // the nodes say whether it runs
		{line: "roll plan --binary=FILE", code: exitConfig, but: map[string]exitCode{"text": exitOK, "cut": exitOK}},
		{line: "certs sign FILE --dir=certs --node=b", code: exitConfig},
		{line: "certs check FILE", code: exitConfig, but: judged},
		{line: "certs lint FILE", code: exitConfig},
		{line: "certs covers FILE localhost", code: exitConfig},
		{line: "certs bundle add FILE --dir=certs", code: exitConfig},
		{line: "certs revoke FILE", code: exitConfig},
	}
	for _, file := range []string{"certs/bundle.crt", "certs/nodes/a/tls.crt", "certs/nodes/a/tls.key"} {
		lines = append(lines, badFile{line: instead("serve --check --config=tls.toml"+node, file), code: exitConfig})
	}
	for _, file := range []string{"certs/bundle.crt", "certs/clients/admin/tls.crt", "certs/clients/admin/tls.key"} {
		lines = append(lines, badFile{line: instead("status "+client, file), code: exitConfig})
	}
	return lines
}

// TestBadFiles gives whatever reads a file one that is not there, a folder, one that
// cannot be read, an empty one, one with something else in it, and one that is cut off.
func TestBadFiles(t *testing.T) {
	g := newBadRig(t)
	bad := []string{"nowhere", "certs", "empty", "text", "cut", "text/x"}
	if runtime.GOOS == "linux" {
		bad = append(bad, "/proc/self/mem") // not readable by root either
	}
	for _, b := range badFiles() {
		for _, file := range bad {
			code, ok := b.but[file]
			if ok && code == exitOK {
				continue
			}
			if !ok {
				code = b.code
			}
			g.refuses(code, file, strings.Fields(strings.ReplaceAll(b.line, "FILE", file))...)
		}
	}
	g.unchanged("files")
	for _, file := range bad {
		if file == "nowhere" || file == "text/x" {
			continue // it is made at first use, or there cannot be one
		}
		g.env["TIDAL_CONFIG"] = file
		g.refuses(exitConfig, file, "status")
	}
	g.unchanged("contexts")
}

// TestBadTOML gives both files of TOML what is none, or not what they hold: each is
// named with its line and column.
func TestBadTOML(t *testing.T) {
	g := newBadRig(t)
	for _, f := range []struct {
		good, name, key, near, section string
		with                           func(file string) []string
	}{
		{
			good: "node.toml", name: "x.toml", key: "data = \"data\"", near: "node.data", section: "node",
			with: func(file string) []string { return []string{"config", "explain", "--config", file} },
		},
		{
			good: "contexts.toml", name: "y.toml", key: "current = \"dev\"", near: "current", section: "clusters.dev",
			with: func(file string) []string { g.env["TIDAL_CONFIG"] = file; return []string{"status"} },
		},
	} {
		text, err := os.ReadFile(f.good)
		if err != nil {
			t.Fatal(err)
		}
		key, _, _ := strings.Cut(f.key, " ")
		good, swap := string(text), func(with string) string { return strings.Replace(string(text), f.key, with, 1) }
		for name, c := range map[string]struct{ text, says string }{
			"a typo in a key":      {swap(strings.Replace(f.key, key, key+"x", 1)), "(did you mean " + f.near + "?)"},
			"a key of nothing":     {swap(f.key + "\nfrobnicate = 1"), "unknown key"},
			"a section of nothing": {good + "[frobnicate]\nx = 1\n", "unknown key frobnicate"},
			"a number":             {swap(key + " = 7"), key},
			"a list":               {swap(key + " = [\"x\"]"), key},
			"a table":              {swap(key + " = {x = 1}"), key},
			"a date":               {swap(key + " = 2026-01-01"), key},
			"twice":                {swap(f.key + "\n" + f.key), key},
			"a section twice":      {good + "[" + f.section + "]\n", "already exists"},
			"a string cut off":     {swap(key + " = \"da"), ""},
			"a section cut off":    {good + "[node", ""},
			"a value cut off":      {good + "[x]\ny =", ""},
			"no equals sign":       {swap(key + " \"x\""), ""},
			"not UTF-8":            {swap(key + " = \"\xe9\""), "UTF-8"},
			"UTF-16":               {"\xff\xfe[\x00n\x00]\x00", "UTF-8"},
			"a byte of zero":       {swap(key + " = \"a\x00b\""), ""},
			"a mark in the middle": {swap("\xef\xbb\xbf" + f.key), ""},
			"old ends of lines":    {strings.ReplaceAll(good, "\n", "\r"), ""},
			"JSON":                 {`{"node":{"id":"a"}}`, ""},
			"deep":                 {swap(key + " = " + strings.Repeat("[", 20_000)), ""},
		} {
			if err := os.WriteFile(f.name, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			g.tree = g.look()
			t.Run(f.name+" "+name, func(t *testing.T) {
				old := g.t
				g.t = t
				g.refuses(exitConfig, c.says, f.with(f.name)...)
				g.unchanged(name)
				g.t = old
			})
		}
	}
}
