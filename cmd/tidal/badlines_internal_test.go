package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/config"
	"tidal/pki"
)

// badRig is a folder with what commands are given, and a cluster that remembers what it
// was asked. Nothing may change in either.
type badRig struct {
	t    *testing.T
	node *fakeNode
	env  map[string]string
	tree string
}

func newBadRig(t *testing.T) *badRig {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	g := &badRig{t: t, node: newFakeNode(t), env: map[string]string{"HOME": dir, "TIDAL_CONFIG": "contexts.toml"}}
	plan := pki.Plan{Cluster: "prod", Nodes: []pki.Node{{ID: "a"}}}
	if _, err := pki.Gen(t.Context(), "certs", plan, time.Now()); err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile("certs/bundle.crt")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"contexts.toml": fmt.Sprintf("version = 1\ncurrent = \"dev\"\n[clusters.dev]\nendpoints = [%q]\n[clusters.prod]\nendpoints = [\"https://127.0.0.1:1\"]\n", g.node.URL),
		"node.toml":     "[node]\nid = \"a\"\ndata = \"data\"\n[cluster]\nname = \"prod\"\n[cluster.members]\na = \"http://127.0.0.1:8433\"\n",
		"tls.toml":      "[node]\nid = \"a\"\ndata = \"data\"\n[cluster]\nname = \"prod\"\n[cluster.members]\na = \"https://127.0.0.1:8433\"\n",
		"rows.ndjson":   `{"key":"a","value":"1"}` + "\n",
		"text":          "x\n",
		"empty":         "",
		"cut":           string(pem[:len(pem)/2]),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g.tree = g.look()
	return g
}

// look lists the folder: names, sizes, times.
func (g *badRig) look() string {
	var b strings.Builder
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return b.String()
}

// refuses runs a line that must end with a code, say what is wrong on one line, and how
// to go on on another, and do nothing.
func (g *badRig) refuses(code exitCode, says string, words ...string) {
	g.t.Helper()
	g.refusesAll(wrong{says: says, code: code}, words...)
}

func (g *badRig) refusesAll(w wrong, words ...string) {
	g.t.Helper()
	code, says := cmpCode(w.code), w.says
	var out, talk bytes.Buffer
	env := func(name string) (string, bool) { v, ok := g.env[name]; return v, ok }
	g.node.asked = nil
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Second) // for a line that is taken
	defer cancel()
	got := run(ctx, append([]string{"tidal"}, words...), strings.NewReader(""), &out, &talk, env)
	text := talk.String()
	if got != int(code) || !strings.Contains(text, says) {
		g.t.Errorf("%q: exit code %d, want %d with %q:\n%s", words, got, code, says, text)
	}
	if out.Len() > 0 {
		g.t.Errorf("%q: on stdout: %s", words, out.String())
	}
	var what, hints int
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "tidal: "):
			what++
		case strings.HasPrefix(line, "hint: "):
			hints++
		case code == exitUsage && !w.asks || !strings.HasPrefix(line, "cluster "):
			g.t.Errorf("%q: a line that is neither the error nor its hint: %s", words, line)
		}
	}
	if what != 1 || hints > 1 || hints == 0 && !ofSystem(text) {
		g.t.Errorf("%q: %d errors and %d hints, want one of each:\n%s", words, what, hints, text)
	}
	if strings.Contains(text, "goroutine ") || strings.Contains(text, ".go:") || strings.Contains(text, "%!") {
		g.t.Errorf("%q: not for users: %s", words, text)
	}
	for _, asked := range g.node.asked {
		if code == exitUsage && !w.asks || !strings.HasPrefix(asked, "GET ") {
			g.t.Errorf("%q: asked for %s", words, asked)
		}
	}
}

// ofSystem reports whether an error ends with what the operating system says of a file:
// that needs no hint.
func ofSystem(text string) bool {
	for _, says := range []string{"no such file or directory", "is a directory", "not a directory", "input/output error", "is not a regular file"} {
		if strings.HasSuffix(text, says+"\n") {
			return true
		}
	}
	return false
}

// unchanged is an error if anything in the folder is not as it was.
func (g *badRig) unchanged(after string) {
	g.t.Helper()
	if now := g.look(); now != g.tree {
		g.t.Errorf("%s: the folder was\n%s\nand is\n%s", after, g.tree, now)
		g.tree = now
	}
}

// eachCommand calls f for each command and each group of them, with the words that
// call it.
func eachCommand(f func(called string, c *cli.Command)) {
	var walk func(string, []*cli.Command)
	walk = func(parent string, commands []*cli.Command) {
		for _, c := range commands {
			called := strings.TrimSpace(parent + " " + c.Name)
			f(called, c)
			walk(called, c.Subcommands)
		}
	}
	walk("", (&app{}).commands())
}

// TestBadNames calls commands and flags by names that are nearly theirs.
func TestBadNames(t *testing.T) {
	root := (&app{}).root()
	refuses := func(says, hint string, words ...string) {
		t.Helper()
		_, err := parse(root, words)
		if codeOf(err) != exitUsage || err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(hintOf(err), hint) {
			t.Errorf("%q: %v (%s), want %q (%s)", words, err, hintOf(err), says, hint)
		}
	}
	eachCommand(func(called string, c *cli.Command) {
		if c.Hidden {
			return
		}
		words := strings.Fields(called)
		typo := slices.Clone(words)
		typo[len(typo)-1] += "z"
		parent := strings.Join(append([]string{"tidal"}, words[:len(words)-1]...), " ")
		if len(words) == 1 || find(root.Commands, words[0]).Action == nil && len(words) == 2 {
			refuses("no command `tidal "+strings.Join(typo, " ")+"`", "did you mean `"+parent+" "+c.Name+"`?", typo...)
		}
		for _, f := range c.Flags {
			name := namesOf(f)[0]
			if !slices.Contains(flagNames(c.Flags), name+"z") {
				refuses("unknown flag --"+name+"z of `tidal "+called+"`", "did you mean --"+name+"?", append(words, "--"+name+"z=1")...)
			}
			if _, isBool := f.(*cli.BoolFlag); isBool {
				continue
			}
			refuses("flag --"+name+" needs a value", "--"+name+"=VALUE", append(words, "--"+name)...)
			refuses("flag --"+name+" needs a value", "--"+name+"=VALUE", append(words, "--"+name, "--yes")...)
		}
	})
}

// wrong is a value that a flag does not take.
type wrong struct {
	value string
	says  string
	code  exitCode // 0: exitUsage
	asks  bool     // only the cluster can tell
}

// TestBadFlags gives each flag of each command what it does not take: what every flag of
// its type refuses, and the values of badValues. A flag without a row there is an error.
func TestBadFlags(t *testing.T) {
	g := newBadRig(t)
	values, lines := badValues(), goodLines()
	used := map[string]bool{} // rows that were tried in full
	eachCommand(func(called string, c *cli.Command) {
		if c.Action == nil {
			return
		}
		line, ok := lines[called]
		if !ok {
			t.Errorf("there is no line for `tidal %s`: add one to goodLines", called)
			return
		}
		for _, f := range c.Flags {
			name := namesOf(f)[0]
			row := called + " --" + name
			if _, own := values[row]; !own {
				row = "--" + name
			}
			all, ok := values[row]
			if !ok {
				t.Errorf("there is no row for --%s of `tidal %s`: add one to badValues", name, called)
			}
			all = append(wrongForType(called, c, f), all...)
			if used[row] { // the same flag of another command: is it looked at here too?
				all = all[:min(1, len(all))]
			}
			used[row] = true
			for _, w := range all {
				words := slices.DeleteFunc(strings.Fields(called+" "+line), func(word string) bool {
					return strings.HasPrefix(word, "--"+name+"=") // which the wrong one stands for
				})
				g.refusesAll(w, append(slices.Clip(words), "--"+name+"="+w.value)...)
			}
		}
		g.unchanged(called)
	})
	for row := range values {
		if !used[row] {
			t.Errorf("%s: there is no such flag", row)
		}
	}
}

// wrongForType returns what no flag of a type takes.
func wrongForType(called string, c *cli.Command, f cli.Flag) []wrong {
	name := namesOf(f)[0]
	is := func(kind string, values ...string) (all []wrong) {
		for _, v := range values {
			all = append(all, wrong{value: v, says: fmt.Sprintf("--%s: %q is not %s", name, v, kind)})
		}
		return all
	}
	empty := wrong{says: "flag --" + name + " of `tidal " + called + "` has an empty value"}
	switch f.(type) {
	case *cli.BoolFlag:
		return is("true or false", "perhaps", "", "2")
	case *cli.IntFlag, *cli.Int64Flag:
		return append(is("a whole number", "many", "1.5", "1e3", "99999999999999999999", "1 ", "١"), empty)
	case *cli.UintFlag, *cli.Uint64Flag:
		return append(is("a whole number from 0 on", "many", "-1", "1.5", "99999999999999999999"), empty)
	case *cli.Float64Flag:
		return append(is("a number", "many", "1,5", "1e999"), empty)
	}
	if mayBeEmpty(c, name) {
		return nil
	}
	return []wrong{empty}
}

// TestBadArguments gives each command too few arguments and too many.
func TestBadArguments(t *testing.T) {
	g := newBadRig(t)
	lines := goodLines()
	eachCommand(func(called string, c *cli.Command) {
		switch {
		case c.Hidden:
			return
		case c.Action == nil:
			g.refuses(exitUsage, "`tidal "+called+"` needs one of the commands ", strings.Fields(called)...)
			return
		}
		var args, flags []string
		for word := range strings.FieldsSeq(lines[called]) {
			if strings.HasPrefix(word, "--") {
				flags = append(flags, word)
			} else {
				args = append(args, word)
			}
		}
		line := func(args ...string) []string { return slices.Concat(strings.Fields(called), flags, args) }
		says, variadic := takesMany()[called]
		if len(args) > 0 {
			if !variadic {
				says = called + ": argument "
			}
			if says != "" {
				g.refuses(exitUsage, says, line(args[:len(args)-1]...)...)
			}
		}
		if !variadic {
			says := called + `: unexpected argument "-more"`
			if len(c.Subcommands) > 0 {
				says = "there is no command `tidal " + called + " -more`"
			}
			g.refuses(exitUsage, says, line(append(append([]string{"--"}, args...), "-more")...)...)
		}
	})
	for _, tt := range badArguments() {
		words := strings.Fields(tt.line)
		for i, w := range words {
			words[i] = strings.Trim(w, "'")
		}
		g.refusesAll(wrong{says: tt.says, asks: tt.asks}, words...)
	}
	g.unchanged("arguments")
}

func cmpCode(code exitCode) exitCode {
	if code == exitOK {
		return exitUsage
	}
	return code
}

// TestBadTogether gives commands flags that exclude one another, or need one another.
func TestBadTogether(t *testing.T) {
	g := newBadRig(t)
	eachCommand(func(called string, c *cli.Command) {
		if c.Action == nil || !slices.Contains(flagNames(c.Flags), "endpoint") {
			return
		}
		line := strings.Fields(called + " " + goodLines()[called])
		line = slices.Clip(line)
		g.refuses(exitUsage, "--cluster and --endpoint name two places", append(line, "--cluster=dev", "--endpoint=https://127.0.0.1:1")...)
	})
	for _, tt := range badTogether() {
		g.refusesAll(wrong{says: tt.says, asks: tt.asks}, strings.Fields(tt.line)...)
	}
	g.unchanged("flags that go together")
}

// TestBadKeys gives each key of a node's configuration what it does not take, by its
// flag and by its variable.
func TestBadKeys(t *testing.T) {
	g := newBadRig(t)
	for _, k := range config.Keys() {
		all, ok := badKeys()[k.Name]
		if !ok {
			t.Errorf("there is no row for %s: add one to badKeys", k.Name)
		}
		for value, says := range all {
			var out, talk bytes.Buffer
			line := []string{"tidal", "serve", "--check", "--config", "node.toml"}
			for _, by := range []string{k.Env(), k.Flag()} {
				env := maps.Clone(g.env)
				words := line
				if by == k.Env() {
					env[by] = value
				} else {
					words = append(slices.Clip(line), "--"+by+"="+value)
				}
				talk.Reset()
				code := run(t.Context(), words, strings.NewReader(""), &out, &talk, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
				if code != int(exitConfig) || !strings.Contains(talk.String(), says) || strings.Count(talk.String(), "hint: ") != 1 && !ofSystem(talk.String()) {
					t.Errorf("%s=%q: exit code %d, want %d with %q and a hint:\n%s", by, value, code, exitConfig, says, talk.String())
				}
			}
			if out.Len() > 0 {
				t.Errorf("%s=%q: on stdout: %s", k.Name, value, out.String())
			}
		}
	}
	g.unchanged("keys")
}
