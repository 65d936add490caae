package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// writeContext puts the cluster into the operator's file under name, and makes it
// the current one if there is none. Everything else in the file stays as it is,
// byte for byte. It reports whether the cluster is the current one.
func writeContext(path, name string, c clusterContext) (current bool, _ error) {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved // a linked file stays linked
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, withCode(exitConfig, fmt.Errorf("read the contexts: %w", err))
	}
	text, err := editContexts(old, name, c)
	if err != nil {
		return false, withHint(withCode(exitConfig, fmt.Errorf("write context %s into %s: %w", name, path, err)),
			"nothing was changed; correct the file, or set TIDAL_CONFIG to another")
	}
	if !bytes.Equal(text, old) {
		if err = replaceFile(path, text); err != nil {
			return false, withCode(exitConfig, fmt.Errorf("write the contexts: %w", err))
		}
	}
	file, err := parseContexts(text)
	return file.Current == name, err
}

// editContexts returns the text of the file with the cluster in it. Only the values
// that change are written anew: comments, order and the rest stay.
func editContexts(old []byte, name string, c clusterContext) ([]byte, error) {
	if len(bytes.TrimSpace(old)) == 0 {
		old = fmt.Appendf(nil, "version = %d\n", contextsVersion)
	}
	before, err := parseContexts(old)
	if err != nil {
		return nil, err
	}
	text := string(old)
	bom := strings.HasPrefix(text, byteOrderMark)
	text = strings.TrimPrefix(text, byteOrderMark)
	if s, found := findSection(text, name); found {
		text = s.set(text, before.Clusters[name], c)
	} else {
		if !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += fmt.Sprintf("\n[clusters.%s]\n", name) + section{}.missing(c)
	}
	if before.Current == "" {
		// Keys of the file itself stand before its sections.
		text = "current = " + strconv.Quote(name) + "\n" + text
	}
	if bom {
		text = byteOrderMark + text
	}
	return []byte(text), unchangedBut([]byte(text), old, name, c)
}

// byteOrderMark is what some editors put first.
const byteOrderMark = "\xef\xbb\xbf"

// setting is a key of a section with its value, as TOML; "" is not written.
type setting struct{ key, value string }

// settings are the keys that this program writes.
func settings(c clusterContext) []setting {
	quoted := make([]string, len(c.Endpoints))
	for i, e := range c.Endpoints {
		quoted[i] = strconv.Quote(e)
	}
	all := []setting{{"endpoints", "[" + strings.Join(quoted, ", ") + "]"}, {"ca", c.CA}, {"cert", c.Cert}, {"key", c.Key}}
	for i, s := range all[1:] {
		if s.value != "" {
			all[i+1].value = strconv.Quote(s.value)
		}
	}
	return all
}

// span is a part of the text.
type span struct{ from, to int }

// section is where the keys of a cluster stand in the text.
type section struct {
	end  int             // of its last key's line, or of its heading
	keys map[string]span // of whole settings, up to the end of the value
	vals map[string]span
}

// findSection looks for the section [clusters.NAME].
func findSection(text, name string) (section, bool) {
	s := section{keys: map[string]span{}, vals: map[string]span{}}
	found, inside := false, false
	var p unstable.Parser
	p.Reset([]byte(text))
	for p.NextExpression() {
		e := p.Expression()
		var path []string
		last := 0
		for it := e.Key(); it.Next(); {
			path = append(path, string(it.Node().Data))
			last = int(it.Node().Raw.Offset + it.Node().Raw.Length)
		}
		switch {
		case e.Kind != unstable.KeyValue:
			inside = e.Kind == unstable.Table && slices.Equal(path, []string{"clusters", name})
			if inside {
				found, s.end = true, lineEnd(text, last)
			}
		case inside:
			to := int(e.Raw.Offset + e.Raw.Length)
			s.end = lineEnd(text, to)
			if len(path) == 1 {
				value := last + strings.IndexByte(text[last:], '=') + 1
				value += len(text[value:]) - len(strings.TrimLeft(text[value:], " \t"))
				s.keys[path[0]], s.vals[path[0]] = span{int(e.Raw.Offset), to}, span{value, to}
			}
		}
	}
	return s, found && p.Error() == nil
}

// lineEnd is where the next line begins.
func lineEnd(text string, at int) int {
	if n := strings.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}

// set returns the text with the values that differ from before.
func (s section) set(text string, before, c clusterContext) string {
	if !strings.HasSuffix(text[:s.end], "\n") {
		text = text[:s.end] + "\n" + text[s.end:]
		s.end++
	}
	text = text[:s.end] + s.missing(c) + text[s.end:]
	type edit struct {
		span
		with string
	}
	var edits []edit
	was := settings(before)
	for i, now := range settings(c) {
		at, there := s.vals[now.key]
		switch {
		case !there || now.value == was[i].value:
		case now.value == "":
			from := strings.LastIndexByte(text[:s.keys[now.key].from], '\n') + 1
			edits = append(edits, edit{span{from, lineEnd(text, at.to)}, ""})
		default:
			edits = append(edits, edit{at, now.value})
		}
	}
	// From the end, so that places stay where they are.
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	for _, e := range edits {
		text = text[:e.from] + e.with + text[e.to:]
	}
	return text
}

// missing returns the lines of the settings that the section does not have.
func (s section) missing(c clusterContext) string {
	var b strings.Builder
	for _, x := range settings(c) {
		if _, there := s.vals[x.key]; !there && x.value != "" {
			fmt.Fprintf(&b, "%s = %s\n", x.key, x.value)
		}
	}
	return b.String()
}

// unchangedBut proves that the edit by lines did what it should: the new text is
// the old one with the cluster set, and the current one if there was none.
func unchangedBut(text, old []byte, name string, c clusterContext) error {
	want, err := parseContexts(old)
	if err != nil {
		return err
	}
	got, err := parseContexts(text)
	if err != nil {
		return fmt.Errorf("the section cannot be edited: %w", err)
	}
	if want.Current == "" {
		want.Current = name
	}
	if want.Clusters == nil {
		want.Clusters = map[string]clusterContext{}
	}
	mine := want.Clusters[name] // with what this program does not write
	mine.Endpoints, mine.CA, mine.Cert, mine.Key = c.Endpoints, c.CA, c.Cert, c.Key
	want.Clusters[name] = mine
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("the section clusters.%s is written in a way that this program cannot edit", name)
	}
	return nil
}

// replaceFile writes the file as a whole or not at all, with the mode that it had.
func replaceFile(path string, text []byte) error {
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tidal-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
