package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"tidal/node/api"
)

// parseObject reads a body that is a JSON object, or empty. what and fields are
// for the error.
func parseObject(body []byte, to any, what, fields string) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	var why string
	var offset int64
	if err := d.Decode(to); err != nil {
		why, offset = objectError(body, d.InputOffset(), err)
	} else {
		why, offset = misnamed(body, to)
	}
	if _, more := d.Token(); why == "" && !errors.Is(more, io.EOF) {
		why, offset = "something follows the JSON object", d.InputOffset()
	}
	if why == "" {
		return nil
	}
	return &api.Error{
		Code:    api.CodeBadRequest,
		Message: fmt.Sprintf("line %d of %s: %s", lineOf(body, offset), what, why),
		Hint:    "it is a JSON object; its fields are " + fields,
	}
}

// misnamed says what is wrong with an object that encoding/json takes: it takes null for
// one, a field's name in other letters, and of two fields of one name the second.
func misnamed(body []byte, to any) (why string, offset int64) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "a null does not fit: want an object", d.InputOffset()
	}
	known := map[string]bool{} // whether it stood there
	for f := range reflect.TypeOf(to).Elem().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = false
	}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			break // it was read before
		}
		stood, ok := known[name]
		switch {
		case !ok:
			return fmt.Sprintf("unknown field %q", clip(name)), d.InputOffset()
		case stood:
			return fmt.Sprintf("field %q stands twice", name), d.InputOffset()
		}
		known[name] = true
		var value json.RawMessage
		if err = d.Decode(&value); err != nil {
			break
		}
	}
	return "", 0
}

func objectError(body []byte, at int64, err error) (why string, offset int64) {
	var (
		syntax *json.SyntaxError
		typed  *json.UnmarshalTypeError
	)
	why, offset = strings.TrimPrefix(err.Error(), "json: "), at
	switch {
	case errors.As(err, &typed):
		offset, why = typed.Offset, fmt.Sprintf("%s: a %s does not fit", typed.Field, typed.Value)
		if typed.Field == "" {
			why = fmt.Sprintf("a %s does not fit: want an object", typed.Value)
		}
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.Is(err, io.ErrUnexpectedEOF):
		offset, why = int64(len(body)), "the JSON object is cut off"
	}
	return why, offset
}

func lineOf(body []byte, offset int64) int {
	return 1 + bytes.Count(body[:min(offset, int64(len(body)))], []byte{'\n'})
}
