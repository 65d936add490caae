package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// readFile takes the values of a tidal.toml.
func (e *Effective) readFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(text) {
		return fmt.Errorf("%s: the file is not UTF-8", path)
	}
	d := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := d.Decode(&e.Config); err != nil {
		return explain(path, err)
	}
	// Decoded once more without fields, to see what was said and what was not.
	var said map[string]map[string]any
	if err := toml.Unmarshal(text, &said); err != nil {
		return explain(path, err)
	}
	for _, k := range Keys() {
		section, name, _ := strings.Cut(k.Name, ".")
		if _, ok := said[section][name]; !ok {
			continue
		}
		e.Origin[k.Name] = "file " + path
		if err := k.makeAbsolute(&e.Config, filepath.Dir(path)); err != nil {
			return fmt.Errorf("%s: %s: %w", path, k.Name, err)
		}
	}
	return nil
}

// explain says what is wrong with the file in words that do not need the TOML
// library's or Go's.
func explain(path string, err error) error {
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		problems := make([]error, 0, len(unknown.Errors))
		for i := range unknown.Errors {
			problems = append(problems, unknownKey(path, &unknown.Errors[i]))
		}
		return errors.Join(problems...)
	}
	at, ok := errors.AsType[*toml.DecodeError](err)
	if !ok {
		return fmt.Errorf("%s: %w", path, err)
	}
	line, column := at.Position()
	text := strings.TrimPrefix(at.Error(), "toml: ")
	if what, _, ok := strings.Cut(text, " into "); ok && strings.HasPrefix(what, "cannot decode TOML ") {
		kind := strings.TrimPrefix(what, "cannot decode TOML ")
		text = fmt.Sprintf("%s where %s belongs", withArticle(kind), wanted(at.Key()))
	}
	key := strings.Join(at.Key(), ".")
	if key != "" {
		key += ": "
	}
	return fmt.Errorf("%s:%d:%d: %s%s", path, line, column, key, text)
}

// unknownKey names the key that nothing reads, and the one that was probably meant.
func unknownKey(path string, at *toml.DecodeError) error {
	line, column := at.Position()
	name := strings.Join(at.Key(), ".")
	p := &KeyError{Key: fmt.Sprintf("%s:%d:%d", path, line, column), Text: "unknown key " + name}
	var known []string
	for _, k := range Keys() {
		section, _, _ := strings.Cut(k.Name, ".")
		known = append(known, k.Name, section)
	}
	if near := Nearest(name, known); near != "" {
		p.Hint = "did you mean " + near + "?"
	}
	return p
}

// wanted says what belongs at a place of the file.
func wanted(key []string) string {
	switch {
	case len(key) == 1:
		return "a section"
	case len(key) == 2 && key[1] == "members":
		return "a section of ID = \"URL\""
	case len(key) == 2 && key[1] == "join":
		return "a list of URLs"
	}
	return "a string"
}

func withArticle(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}
