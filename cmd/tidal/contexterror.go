package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"tidal/node/config"
)

// contextsError says what is wrong with the operator's file in words that do not need
// the TOML library's or Go's. It begins with line and column.
func contextsError(err error) error {
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		at := &unknown.Errors[0]
		line, column := at.Position()
		key := at.Key()
		text := fmt.Sprintf("%d:%d: unknown key %s", line, column, strings.Join(key, "."))
		if near := config.Nearest(key[len(key)-1], contextKeys(reflect.TypeFor[contexts]())); near != "" {
			text += " (did you mean " + near + "?)"
		}
		return errors.New(text)
	}
	at, ok := errors.AsType[*toml.DecodeError](err)
	if !ok {
		return err
	}
	line, column := at.Position()
	text := strings.TrimPrefix(at.Error(), "toml: ")
	if what, _, ok := strings.Cut(text, " into "); ok && strings.HasPrefix(what, "cannot decode TOML ") {
		text = fmt.Sprintf("%s: what stands there (%s) does not belong there", strings.Join(at.Key(), "."), strings.TrimPrefix(what, "cannot decode TOML "))
	}
	return fmt.Errorf("%d:%d: %s", line, column, text)
}

// contextKeys returns the names of all keys that a type is read from.
func contextKeys(t reflect.Type) (names []string) {
	for t.Kind() == reflect.Map || t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("toml"), ","); name != "" {
			names = append(names, name)
		}
		names = append(names, contextKeys(f.Type)...)
	}
	return names
}
