package generic

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"tidal/roll"
)

// Template is a command with placeholders: a list of words that is run as it is, or
// a line for the shell.
type Template struct {
	words []string
	shell bool
}

// templateOf reads a template from the configuration: a list of words is run as it
// is, a text is for the shell.
func templateOf(v any) (Template, error) {
	switch v := v.(type) {
	case nil:
		return Template{}, nil
	case string:
		if strings.TrimSpace(v) == "" {
			return Template{}, errors.New("is empty: leave it out instead")
		}
		return Template{words: []string{v}, shell: true}, nil
	case []any:
		t := Template{}
		for _, w := range v {
			s, ok := w.(string)
			if !ok {
				return Template{}, fmt.Errorf("has the word %v, which is no text", w)
			}
			t.words = append(t.words, s)
		}
		if len(t.words) == 0 || t.words[0] == "" {
			return Template{}, errors.New("names no program")
		}
		return t, nil
	}
	return Template{}, fmt.Errorf("is %v: want a list of words, or a text for the shell", v)
}

func (t Template) empty() bool { return len(t.words) == 0 }

// placeholder is {name}; ${name} is the shell's.
func placeholder() *regexp.Regexp { return regexp.MustCompile(`\$?\{[a-z][a-z0-9_]*\}`) }

// fill puts values into a text. They need no quotes, of whatever shell: see
// roll.CheckWord.
func fill(text string, vars map[string]string) string {
	return placeholder().ReplaceAllStringFunc(text, func(p string) string {
		if v, ok := vars[strings.Trim(p, "{}")]; ok && p[0] == '{' {
			return v
		}
		return p
	})
}

// unknownIn returns the first placeholder of a text that has no value.
func unknownIn(text string, vars map[string]string) string {
	for _, p := range placeholder().FindAllString(text, -1) {
		if _, ok := vars[strings.Trim(p, "{}")]; !ok && p[0] == '{' {
			return p
		}
	}
	return ""
}

// argv is the command with the values of one node.
func (t Template) argv(vars map[string]string) []string {
	if t.shell {
		return []string{"/bin/sh", "-c", fill(t.words[0], vars)}
	}
	out := make([]string, len(t.words))
	for i, w := range t.words {
		out[i] = fill(w, vars)
	}
	return out
}

// check refuses a template with a placeholder that has no value.
func (t Template) check(vars map[string]string) error {
	for _, w := range t.words {
		if p := unknownIn(w, vars); p != "" {
			return fmt.Errorf("has the placeholder %s, and there are {%s}", p, strings.Join(slices.Sorted(maps.Keys(vars)), "} {"))
		}
	}
	return nil
}

// verbatim is the command as it would be typed.
func (t Template) verbatim(vars map[string]string) string { return roll.Verbatim(t.argv(vars)) }
