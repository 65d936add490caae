package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/config"
)

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// cells returns the rows of the tables in a page whose first cell matches.
func cells(page, first string) [][]string {
	match := regexp.MustCompile("^" + first + "$")
	var rows [][]string
	for line := range strings.Lines(page) {
		parts := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		if len(parts) > 1 && match.MatchString(parts[0]) {
			rows = append(rows, parts)
		}
	}
	return rows
}

func TestExitCodesAreDocumented(t *testing.T) {
	var want [][]string
	for _, m := range exitMeanings() {
		want = append(want, []string{strconv.Itoa(int(m.code)), m.meaning})
	}
	if diff := cmp.Diff(want, cells(readDoc(t, "docs/exit-codes.md"), `\d+`)); diff != "" {
		t.Error(diff)
	}
}

func TestKeysAreDocumented(t *testing.T) {
	defaults := map[string]string{"node.advertise": "this node's entry in `cluster.members`"}
	var want [][]string
	for _, k := range config.Keys() {
		byDefault := defaults[k.Name]
		if v := k.Value(config.Default()); v != "" {
			byDefault = "`" + v + "`"
		} else if byDefault == "" {
			byDefault = "none"
		}
		want = append(want, []string{"`" + k.Name + "`", "`" + k.Env() + "`", "`--" + k.Flag() + "`", byDefault})
	}
	var got [][]string
	for _, row := range cells(readDoc(t, "docs/configuration.md"), "`[a-z]+\\.[a-z]+`") {
		got = append(got, row[:4])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestServeHasEveryKey proves that each key is a flag of the commands that read
// the configuration.
func TestServeHasEveryKey(t *testing.T) {
	names := flagNames(configFlags())
	for _, k := range config.Keys() {
		if !slices.Contains(names, k.Flag()) {
			t.Errorf("there is no flag --%s", k.Flag())
		}
	}
}

func TestErrorCodesAreDocumented(t *testing.T) {
	page := readDoc(t, "docs/http-api.md")
	for _, k := range api.Kinds() {
		found := false
		for line := range strings.Lines(page) {
			found = found || strings.Contains(line, "`"+string(k.Code)+"`") && strings.Contains(line, strconv.Itoa(k.Status))
		}
		if !found {
			t.Errorf("docs/http-api.md has no line with `%s` and %d", k.Code, k.Status)
		}
	}
}

// TestDocsShowRealCommands proves that every tidal command in the pages exists,
// with its flags.
func TestDocsShowRealCommands(t *testing.T) {
	root := (&app{}).root()
	shown := regexp.MustCompile(`(?m)^(?:bin/)?tidal ([^\n#]*)`)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md") {
		text := fenced(readDoc(t, strings.TrimPrefix(page, "../../")))
		for _, m := range shown.FindAllStringSubmatch(text, -1) {
			checkShown(t, root, page, m[1])
		}
	}
}

// fenced returns what stands between the ``` lines of a page.
func fenced(page string) string {
	var b strings.Builder
	in := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			in = !in
		} else if in {
			b.WriteString(line)
		}
	}
	return b.String()
}

func checkShown(t *testing.T, root *cli.App, page, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " <") // a redirection
	l, err := parse(root, strings.Fields(regexp.MustCompile(`'[^']*'`).ReplaceAllString(line, "QUOTED")))
	if err != nil {
		t.Errorf("%s: tidal %s: %v", page, line, err)
		return
	}
	if len(l.path) == 0 {
		t.Errorf("%s: tidal %s: no command", page, line)
	}
}

// TestLinksLeadSomewhere follows the relative links between pages.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(readDoc(t, strings.TrimPrefix(page, "../../")), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
