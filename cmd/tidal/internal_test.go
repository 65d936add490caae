package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/pki"
)

func TestParse(t *testing.T) {
	root := &cli.App{Name: "tidal", Commands: []*cli.Command{
		{Name: "top", Aliases: []string{"t"}, Flags: []cli.Flag{&cli.BoolFlag{Name: "once"}, outputFlag()}},
		{Name: "rows", Subcommands: []*cli.Command{
			{Name: "put", Flags: []cli.Flag{&cli.StringFlag{Name: "cluster"}, &cli.BoolFlag{Name: "yes", Aliases: []string{"y"}}, outputFlag()}},
			{Name: "get", Flags: []cli.Flag{outputFlag()}},
		}},
		{Name: "version"},
	}}
	tests := []struct{ line, want string }{
		{"", "tidal"},
		{"top", "tidal top"},
		{"t --once", "tidal top --once"},
		{"rows put a b -o json", "tidal rows put -o json -- a b"},
		{"rows put -o json a b", "tidal rows put -o json -- a b"},
		{"rows -o json put a b", "tidal rows put -o json -- a b"},
		{"-o json rows put a b", "tidal rows put -o json -- a b"},
		{"rows put a -y b --cluster x c", "tidal rows put -y --cluster x -- a b c"},
		{"rows put --output=json a", "tidal rows put --output=json -- a"},
		{"rows put -output json a", "tidal rows put -output json -- a"},
		{"rows put --yes=false a", "tidal rows put --yes=false -- a"},
		{"rows put --cluster=-x a", "tidal rows put --cluster=-x -- a"},
		{"rows put a -", "tidal rows put -- a -"},
		{"rows put --cluster - a", "tidal rows put --cluster - -- a"},
		{"rows put a -- -5", "tidal rows put -- a -5"},
		{"rows put -- -o json", "tidal rows put -- -o json"},
		{"rows put -- a -- b", "tidal rows put -- a -- b"},
		{"rows put get get", "tidal rows put -- get get"},
		{"rows put help", "tidal rows put -- help"},
		{"--help", "tidal --help"},
		{"help", "tidal --help"},
		{"help rows put", "tidal rows put --help"},
		{"rows --help", "tidal rows --help"},
		{"rows put a -h", "tidal rows put --help"},
		{"--version", "tidal version"},
		// The errors.
		{"rows put -5", "unknown flag -5"},
		{"rows put --clutser x", "unknown flag --clutser"},
		{"rows get --cluster x", "unknown flag --cluster"},
		{"rows put a --cluster", "flag --cluster needs a value"},
		{"rows put --output= a", "flag --output of `tidal rows put` has an empty value"},
		{"rows put --cluster --yes a", "flag --cluster needs a value"},
		{"rows put --cluster -- a", "flag --cluster needs a value"},
		{"rows", "`tidal rows` needs one of the commands put, get"},
		{"rows pet a", "no command `tidal rows pet`"},
		{"row", "no command `tidal row`"},
		{"help row", "no command `tidal row`"},
		{"-x", "unknown flag -x"},
		{"--", "tidal"},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			l, err := parse(root, strings.Fields(tt.line))
			if err != nil {
				if codeOf(err) != exitUsage {
					t.Errorf("code %d, want %d", codeOf(err), exitUsage)
				}
				if hintOf(err) == "" {
					t.Errorf("no hint with %q", err)
				}
				if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got  %v\nwant %s", err, tt.want)
				}
				return
			}
			if got := strings.Join(l.words(root), " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestFlagsMeanTheSame holds what parse relies on: a flag takes a value in every
// command or in none, and no command has two flags of one name.
func TestFlagsMeanTheSame(t *testing.T) {
	takesValue := map[string]bool{}
	var walk func(string, []*cli.Command)
	walk = func(parent string, commands []*cli.Command) {
		for _, c := range commands {
			name := parent + " " + c.Name
			seen := map[string]bool{}
			for _, f := range c.Flags {
				_, isBool := f.(*cli.BoolFlag)
				for _, n := range f.Names() {
					if was, ok := takesValue[n]; ok && was == isBool {
						t.Errorf("%s: flag %s takes a value here and not elsewhere, or the other way round", name, n)
					}
					takesValue[n] = !isBool
					if seen[n] {
						t.Errorf("%s: flag %s is there twice", name, n)
					}
					seen[n] = true
				}
				if d, ok := f.(cli.DocGenerationFlag); ok && d.GetUsage() == "" {
					t.Errorf("%s: flag %v says nothing about itself", name, f.Names())
				}
			}
			if c.Usage == "" {
				t.Errorf("%s says nothing about itself", name)
			}
			if c.Action == nil && len(c.Flags) > 0 {
				t.Errorf("%s has flags and does nothing; flags belong to the commands that run", name)
			}
			walk(name, c.Subcommands)
		}
	}
	walk("tidal", (&app{}).commands())
}

func TestCodes(t *testing.T) {
	base := errors.New("x")
	tests := []struct {
		name string
		err  error
		code exitCode
		hint string
	}{
		{"none", nil, exitOK, ""},
		{"plain", base, exitFailed, ""},
		{"code", withCode(exitLocked, base), exitLocked, ""},
		{"outermost code", withCode(exitAuth, withCode(exitLocked, base)), exitAuth, ""},
		{"code under hint", withHint(withCode(exitLocked, base), "h"), exitLocked, "h"},
		{"hint under code", withCode(exitLocked, withHint(base, "h")), exitLocked, "h"},
		{"wrapped", fmt.Errorf("w: %w", withCode(exitPaused, withHint(base, "h"))), exitPaused, "h"},
		{"usage", usagef("u"), exitUsage, ""},
		{"forbidden", &api.Error{Code: api.CodeForbidden, Hint: "ask"}, exitAuth, "ask"},
		{"unauthorized", fmt.Errorf("w: %w", &api.Error{Code: api.CodeUnauthorized}), exitAuth, ""},
		{"not ready", &api.Error{Code: api.CodeNotReady}, exitNotReady, ""},
		{"row not found", &api.Error{Code: api.CodeRowNotFound}, exitFailed, ""},
		{"table not found", &api.Error{Code: api.CodeTableNotFound, Hint: "GET /v1/tables"}, exitFailed, "`tidal tables list` lists the tables, `tidal tables create` makes one"},
		{"node not found", fmt.Errorf("w: %w", &api.Error{Code: api.CodeNodeNotFound, Hint: "GET /v1/nodes"}), exitFailed, "`tidal node list` lists the nodes"},
		{"node not found, and why", withHint(&api.Error{Code: api.CodeNodeNotFound}, "its nodes are a"), exitFailed, "its nodes are a"},
		{"unreachable", fmt.Errorf("w: %w", client.ErrUnreachable), exitUnreachable, "is a node running there, and is that its address? --endpoint and --cluster name others"},
		{"not trusted", fmt.Errorf("w: %w: %w", client.ErrUnreachable, client.ErrTLS), exitAuth, ""},
		{"interrupted", fmt.Errorf("w: %w", context.Canceled), exitInterrupted, ""},
		{"bad name", &pki.Error{Kind: pki.KindUsage, Hint: "p"}, exitUsage, "p"},
		{"bad file", &pki.Error{Kind: pki.KindFiles}, exitConfig, ""},
		{"refused", &pki.Error{Kind: pki.KindRefused}, exitRefused, ""},
		{"locked", &pki.Error{Kind: pki.KindLocked}, exitLocked, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := codeOf(tt.err); got != tt.code {
				t.Errorf("code %d, want %d", got, tt.code)
			}
			if got := hintOf(tt.err); got != tt.hint {
				t.Errorf("hint %q, want %q", got, tt.hint)
			}
		})
	}
	if withCode(exitConfig, nil) != nil || withHint(nil, "h") != nil {
		t.Error("no error became one")
	}
}

func TestReport(t *testing.T) {
	err := fmt.Errorf("put row: %w", &api.Error{Code: api.CodeTooLarge, Message: "the row is too large", Hint: "send less"})
	var b bytes.Buffer
	report(&b, err)
	if want := "tidal: put row: the row is too large (too-large)\nhint: send less\n"; b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}

func TestInterruptedIsSaidSo(t *testing.T) {
	var b bytes.Buffer
	report(&b, fmt.Errorf("wait for the nodes: %w", context.Canceled))
	if want := "tidal: wait for the nodes: interrupted\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestPanicIsInternal(t *testing.T) {
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"tidal", "version"}, nil, panicking{}, &stderr, os.LookupEnv)
	if code != int(exitInternal) || !strings.Contains(stderr.String(), "internal error: no paper") {
		t.Errorf("code %d, stderr %s", code, stderr.String())
	}
}

type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("no paper") }

func TestEditContexts(t *testing.T) {
	dev := clusterContext{Endpoints: []string{"https://127.0.0.1:1", "https://127.0.0.1:2"}, CA: "/d/bundle.crt", Cert: "/d/tls.crt", Key: "/d/tls.key"}
	const devText = "[clusters.dev]\nendpoints = [\"https://127.0.0.1:1\", \"https://127.0.0.1:2\"]\n" +
		"ca = \"/d/bundle.crt\"\ncert = \"/d/tls.crt\"\nkey = \"/d/tls.key\"\n"
	const prod = "# mine\nversion = 1\ncurrent = \"prod\" # always\n\n[clusters.prod]\nendpoints = [\"https://p:8433\"]\n"
	tests := []struct{ name, old, want string }{
		{"none", "", "current = \"dev\"\nversion = 1\n\n" + devText},
		{"another", prod, prod + "\n" + devText},
		{"no newline at the end", strings.TrimSuffix(prod, "\n"), prod + "\n" + devText},
		{"no current", "version = 1\n", "current = \"dev\"\nversion = 1\n\n" + devText},
		{
			"old one last, its heading kept", prod + "\n" + "[ clusters . \"dev\" ] # old\nendpoints = []\n",
			prod + "\n" + strings.Replace(devText, "[clusters.dev]", "[ clusters . \"dev\" ] # old", 1),
		},
		{
			"comments among the keys, many lines, what stays the same",
			"version = 1\ncurrent = 'prod'\n[clusters.dev]\n# where\nendpoints = [ # all\n  'x',\n] # three\nca = '/d/bundle.crt' # mine\n\n# me\ncert=\"old\" # soon\n\n[clusters.prod]\nkey = 'k'\n",
			"version = 1\ncurrent = 'prod'\n[clusters.dev]\n# where\nendpoints = [\"https://127.0.0.1:1\", \"https://127.0.0.1:2\"] # three\nca = '/d/bundle.crt' # mine\n\n# me\ncert=\"/d/tls.crt\" # soon\nkey = \"/d/tls.key\"\n\n[clusters.prod]\nkey = 'k'\n",
		},
		{
			"no newline at the end, CRLF and a mark", "\xef\xbb\xbfversion = 1\r\ncurrent = 'dev'\r\n[clusters.dev]\r\nca = '/d/bundle.crt'",
			"\xef\xbb\xbfversion = 1\r\ncurrent = 'dev'\r\n[clusters.dev]\r\nca = '/d/bundle.crt'\nendpoints = [\"https://127.0.0.1:1\", \"https://127.0.0.1:2\"]\ncert = \"/d/tls.crt\"\nkey = \"/d/tls.key\"\n",
		},
		{
			"old one first, comment kept",
			"version = 1\ncurrent = 'prod'\n[clusters.dev]\nendpoints = ['x']\n\n# about prod\n[clusters.prod]\nkey = 'k'\n",
			"version = 1\ncurrent = 'prod'\n" + devText + "\n# about prod\n[clusters.prod]\nkey = 'k'\n",
		},
		{
			"not what looks like it in a string", "version = 1\ncurrent = '''\n[clusters.dev]\n'''\n",
			"version = 1\ncurrent = '''\n[clusters.dev]\n'''\n\n" + devText,
		},
		{"the same again", prod + "\n" + devText, prod + "\n" + devText},
		{
			"with defaults of its rolls", prod + "[clusters.dev]\nendpoints = []\n\n[clusters.dev.roll]\nsettle = '30s'\n",
			prod + devText + "\n[clusters.dev.roll]\nsettle = '30s'\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := editContexts([]byte(tt.old), "dev", dev)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, old := range map[string]string{
		"inline":       "version = 1\nclusters = {dev = {ca = 'x'}}\n",
		"dotted":       "version = 1\nclusters.dev.ca = 'x'\n",
		"dotted in it": "version = 1\n[clusters]\ndev.ca = 'x'\n",
		"unknown key":  "version = 1\ncolour = 1\n",
		"future":       "version = 2\n",
		"not toml":     "version = \n",
		"unknown more": "version = 1\n[clusters.dev]\nfrobs = 2\n",
	} {
		if got, err := editContexts([]byte(old), "dev", dev); err == nil {
			t.Errorf("%s: became %s", name, got)
		}
	}
}

// TestEditContextsTakesAway: what a cluster has no more goes with its line.
func TestEditContextsTakesAway(t *testing.T) {
	old := "version = 1\ncurrent = 'dev'\n[clusters.dev]\n  ca = 'x' # gone\n# stays\nendpoints = ['https://127.0.0.1:1']\nkey = 'k'"
	got, err := editContexts([]byte(old), "dev", clusterContext{Endpoints: []string{"https://127.0.0.1:1"}})
	want := "version = 1\ncurrent = 'dev'\n[clusters.dev]\n# stays\nendpoints = ['https://127.0.0.1:1']\n"
	if err != nil || string(got) != want {
		t.Errorf("%v, %s", err, cmp.Diff(want, string(got)))
	}
}

func TestWriteContextKeepsLinkAndMode(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "dotfiles.toml"), filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, []byte("version = 1\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	current, err := writeContext(link, "dev", clusterContext{Endpoints: []string{"http://127.0.0.1:1"}})
	if err != nil || !current {
		t.Fatalf("current %v: %v", current, err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v: %v", info.Mode(), err)
	}
	info, err = os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file has mode %v: %v", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".tidal-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	got, err := readContexts(link)
	if err != nil || !slices.Equal(got.Clusters["dev"].Endpoints, []string{"http://127.0.0.1:1"}) {
		t.Errorf("read back %+v: %v", got, err)
	}
}

func TestTarget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	text := "version = 1\ncurrent = 'prod'\n[clusters.prod]\nendpoints = ['https://p:1']\nca = 'ca.crt'\n[clusters.dev]\nendpoints = ['http://127.0.0.1:1']\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, line, cluster, want string }{
		{"current", "", "", "prod (https://p:1) ca " + filepath.Join(filepath.Dir(path), "ca.crt")},
		{"environment", "", "dev", "dev (http://127.0.0.1:1) ca "},
		{"flag", "--cluster prod", "dev", "prod (https://p:1) ca " + filepath.Join(filepath.Dir(path), "ca.crt")},
		{"direct", "--endpoint https://x:1 --endpoint https://y:1 --ca c", "", "https://x:1, https://y:1 ca c"},
		{"both", "--endpoint https://x:1 --cluster prod", "", "name two places"},
		{"half", "--ca c", "", "go with --endpoint"},
		{"unknown", "--cluster prd", "", `has no cluster "prd"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &app{env: func(name string) (string, bool) {
				v := map[string]string{"TIDAL_CONFIG": path, "TIDAL_CLUSTER": tt.cluster}[name]
				return v, v != ""
			}}
			var got string
			root := &cli.App{Flags: connectFlags(), Action: func(c *cli.Context) error {
				to, err := a.target(c)
				got = to.String() + " ca " + to.CA
				return err
			}}
			if err := root.Run(append([]string{"tidal"}, strings.Fields(tt.line)...)); err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
