package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2/unstable"
)

// FuzzContexts reads whatever stands in the operator's file, writes a cluster into it
// and reads that again: an error names the file and a line of it; a write loses no
// cluster, key or comment, and is the same when it is done again.
func FuzzContexts(f *testing.F) {
	for _, text := range []string{
		"", "version = 1\ncurrent = \"prod\" # mine\n\n# about prod\n[clusters.prod]\nendpoints = ['https://p:8433']\n",
		"\xef\xbb\xbfversion = 1\r\n[clusters.dev]\r\n# where\r\nca = 'x' # this one\r\n[clusters.dev.roll]\r\nsettle = '30s'",
		"version = 1\n[clusters]\ndev.ca = 'x'\n", "version = 1\nclusters = {dev = {ca = 'x'}}", "version = 1\n[clusters.\"a b\"]\nkind = 'generic'\n",
		"version = 2", "version = 'x'", "[[clusters]]\n", "version = 1\n[clusters.dev]\nendpoints = [ # all\n 'x',\n]\n#\x00",
	} {
		f.Add(text, "/d/bundle.crt", "dev")
	}
	path := filepath.Join(f.TempDir(), "config.toml")
	at := regexp.MustCompile(`^` + regexp.QuoteMeta(path) + `:(\d+):(\d+): .`)
	f.Fuzz(func(t *testing.T, text, ca, name string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := clusterContext{Endpoints: []string{"https://127.0.0.1:1"}, CA: ca, Cert: ca + "c", Key: ca + "k"}
		if _, err := readContexts(path); err != nil && strings.TrimSpace(text) != "" {
			m := at.FindStringSubmatch(err.Error())
			if m == nil {
				t.Fatalf("%q: no file and line: %v", text, err)
			}
			if line, _ := strconv.Atoi(m[1]); line < 1 || line > 1+strings.Count(text, "\n") {
				t.Fatalf("%q: no line of it: %v", text, err)
			}
			if _, err = editContexts([]byte(text), name, c); err == nil {
				t.Fatalf("%q: cannot be read, and was written", text)
			}
			return
		}
		got, err := editContexts([]byte(text), name, c)
		if err != nil {
			return
		}
		wrote(t, text, string(got), name, c)
		again, err := editContexts(got, name, c)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("%q became %q, and then %q, %v", text, got, again, err)
		}
	})
}

// wrote compares the operator's file before and after a cluster was written into it.
func wrote(t *testing.T, before, after, name string, c clusterContext) {
	t.Helper()
	was, err := parseContexts([]byte(before))
	if err != nil && strings.TrimSpace(before) != "" {
		t.Fatal(err)
	}
	is, err := parseContexts([]byte(after))
	if err != nil {
		t.Fatalf("%q became %q, which cannot be read: %v", before, after, err)
	}
	mine := is.Clusters[name]
	if !slices.Equal(mine.Endpoints, c.Endpoints) || mine.CA != c.CA || mine.Cert != c.Cert || mine.Key != c.Key {
		t.Errorf("%q became %q: the cluster is %+v", before, after, mine)
	}
	old := was.Clusters[name]
	mine.Endpoints, mine.CA, mine.Cert, mine.Key = old.Endpoints, old.CA, old.Cert, old.Key
	if !reflect.DeepEqual(mine, old) {
		t.Errorf("%q became %q: the cluster's other keys are %+v", before, after, mine)
	}
	maps.DeleteFunc(was.Clusters, func(k string, _ clusterContext) bool { return k == name })
	maps.DeleteFunc(is.Clusters, func(k string, _ clusterContext) bool { return k == name })
	if len(was.Clusters)+len(is.Clusters) > 0 && !reflect.DeepEqual(is.Clusters, was.Clusters) || was.Current != "" && is.Current != was.Current {
		t.Errorf("%q became %q: other clusters, or the current one, changed", before, after)
	}
	if a, b := comments(after), comments(before); !slices.Equal(a, b) {
		t.Errorf("%q became %q: the comments are %q and were %q", before, after, a, b)
	}
}

// comments returns those of a text that do not stand inside of a value.
func comments(text string) (all []string) {
	p := unstable.Parser{KeepComments: true}
	p.Reset([]byte(strings.TrimPrefix(text, byteOrderMark)))
	for p.NextExpression() {
		for e := p.Expression(); e != nil; e = e.Next() {
			if e.Kind == unstable.Comment {
				all = append(all, string(e.Data))
			}
		}
	}
	return all
}
