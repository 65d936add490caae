package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
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

// editContexts returns the text of the file with the cluster in it.
func editContexts(old []byte, name string, c clusterContext) ([]byte, error) {
	if len(bytes.TrimSpace(old)) == 0 {
		old = fmt.Appendf(nil, "version = %d\n", contextsVersion)
	}
	before, err := parseContexts(old)
	if err != nil {
		return nil, err
	}
	text := replaceSection(string(old), name, section(name, c))
	if before.Current == "" {
		// Keys of the file itself stand before its sections.
		text = "current = " + strconv.Quote(name) + "\n" + text
	}
	return []byte(text), unchangedBut([]byte(text), old, name, c)
}

// section returns the cluster as a section of the file.
func section(name string, c clusterContext) string {
	quoted := make([]string, len(c.Endpoints))
	for i, e := range c.Endpoints {
		quoted[i] = strconv.Quote(e)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[clusters.%s]\nendpoints = [%s]\n", name, strings.Join(quoted, ", "))
	for _, f := range []struct{ key, value string }{{"ca", c.CA}, {"cert", c.Cert}, {"key", c.Key}} {
		if f.value != "" {
			fmt.Fprintf(&b, "%s = %s\n", f.key, strconv.Quote(f.value))
		}
	}
	return b.String()
}

// replaceSection puts the section in the place of the one for name, or at the end.
func replaceSection(text, name, with string) string {
	head := regexp.MustCompile(`^[ \t]*\[[ \t]*clusters[ \t]*\.[ \t]*["']?` + regexp.QuoteMeta(name) + `["']?[ \t]*\]`)
	keyValue := regexp.MustCompile(`^[ \t]*[A-Za-z_]+[ \t]*=`)
	lines := strings.SplitAfter(text, "\n")
	for i, l := range lines {
		if !head.MatchString(l) {
			continue
		}
		// The section ends with its last key: what follows may be a comment on the next.
		end := i + 1
		for j := i + 1; j < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[j]), "["); j++ {
			if keyValue.MatchString(lines[j]) {
				end = j + 1
			}
		}
		return strings.Join(lines[:i], "") + with + strings.Join(lines[end:], "")
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "\n" + with
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
	want.Clusters[name] = c
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
