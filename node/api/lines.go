package api

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// lines reads the changes of a batch: JSON objects, one a line. It knows the few
// fields that a change has and nothing else of JSON, which makes it several times
// faster than what knows all, and strict: a field that is unknown or stands twice,
// and bytes that are not UTF-8, are errors.
type lines struct {
	b     []byte // what is left of the line
	arena []byte // values that are not in the body as they are; never moved
}

// ParseChanges reads lines of a batch, of which the first has that number. Values
// alias them. The error, an *Error, names the first line that is wrong.
func ParseChanges(body []byte, first int) ([]Change, error) {
	p := lines{arena: make([]byte, 0, ParseBytes(body))}
	changes := make([]Change, 0, min(bytes.Count(body, []byte{'\n'})+1, MaxChanges))
	for n := first; len(body) > 0; n++ {
		var line []byte
		line, body, _ = bytes.Cut(body, []byte{'\n'})
		if p.b = bytes.TrimRight(line, " \t\r"); len(p.b) == 0 {
			continue
		}
		if len(changes) == MaxChanges {
			return nil, &Error{
				Code: CodeTooLarge, Message: fmt.Sprintf("line %d: a batch has up to %d changes", n, MaxChanges),
				Hint: "send several batches",
			}
		}
		c, err := p.change()
		if err != nil && bytes.HasPrefix(line, []byte("\xef\xbb\xbf")) {
			err.Message = "it begins with a byte order mark, which no JSON has: save the file as UTF-8 without one"
		}
		if err != nil {
			err.Message = fmt.Sprintf("line %d: %s", n, err.Message)
			return nil, err
		}
		changes = append(changes, c)
	}
	if len(changes) == 0 {
		return nil, badLine("a batch has at least one line")
	}
	return changes, nil
}

// ParseBytes returns how many bytes ParseChanges allocates for values at most.
func ParseBytes(body []byte) int {
	if bytes.IndexByte(body, '\\') < 0 && !bytes.Contains(body, []byte(fieldBase64)) {
		return 0
	}
	return len(body)
}

const (
	fieldKey    = "key"
	fieldValue  = "value"
	fieldBase64 = "value_base64"
	fieldDelete = "delete"
)

const lineHint = `a line is {"key":"k","value":"text"}, {"key":"k","value_base64":"…"} or {"key":"k","delete":true}`

func badLine(format string, args ...any) *Error {
	return &Error{Code: CodeBadRequest, Message: fmt.Sprintf(format, args...), Hint: lineHint}
}

// field is one of those that a line may have.
type field uint8

const (
	hasKey field = 1 << iota
	hasValue
	hasBase64
	hasDelete
)

// change reads the object on a line.
func (p *lines) change() (Change, *Error) {
	var c Change
	if !utf8.Valid(p.b) {
		return c, badLine("it is not UTF-8")
	}
	if !p.next('{') {
		return c, badLine("it is no JSON object")
	}
	var seen field
	for first := true; !p.next('}'); first = false {
		if !first && !p.next(',') {
			return c, badLine("a comma or } is missing, or the line is cut off")
		}
		f, err := p.field(&c)
		if err != nil {
			return c, err
		}
		if seen&f != 0 {
			return c, badLine("a field stands twice")
		}
		seen |= f
	}
	if p.space(); len(p.b) > 0 {
		return c, badLine("something follows the JSON object")
	}
	return c, checkChange(&c, seen)
}

func checkChange(c *Change, seen field) *Error {
	switch seen {
	case hasKey | hasValue, hasKey | hasBase64, hasKey | hasDelete:
	default:
		if seen&hasKey == 0 {
			return badLine("it has no key")
		}
		return badLine("it has not one of value, value_base64 and delete")
	}
	if err := CheckKey(c.Key); err != nil {
		return badLine("%s", AsError(err).Message)
	}
	if len(c.Value) > MaxValue {
		return &Error{Code: CodeTooLarge, Message: fmt.Sprintf("the row's value has %d bytes: the limit is %d", len(c.Value), MaxValue)}
	}
	return nil
}

// field reads a field and its value into c.
func (p *lines) field(c *Change) (field, *Error) {
	name, err := p.string("a field's name")
	if err != nil {
		return 0, err
	}
	if !p.next(':') {
		return 0, badLine("a colon is missing after %q", clip(string(name)))
	}
	switch string(name) {
	case fieldKey:
		name, err = p.string(fieldKey)
		c.Key = string(name)
		return hasKey, err
	case fieldValue:
		c.Value, err = p.string(fieldValue)
		return hasValue, err
	case fieldBase64:
		text, err := p.string(fieldBase64)
		if err != nil {
			return 0, err
		}
		at := len(p.arena)
		all, bad := base64.StdEncoding.AppendDecode(p.arena, text)
		if bad != nil || bytes.ContainsAny(text, "\r\n") {
			return 0, badLine("value_base64 is not in base64 with padding, as of RFC 4648")
		}
		p.arena = all
		c.Value = all[at:len(all):len(all)]
		return hasBase64, nil
	case fieldDelete:
		if p.space(); !bytes.HasPrefix(p.b, []byte("true")) {
			return 0, badLine("delete is not true")
		}
		p.b = p.b[len("true"):]
		c.Delete = true
		return hasDelete, nil
	}
	return 0, badLine("unknown field %q", clip(string(name)))
}

// space skips what may stand between two words.
func (p *lines) space() {
	for len(p.b) > 0 && (p.b[0] == ' ' || p.b[0] == '\t' || p.b[0] == '\r') {
		p.b = p.b[1:]
	}
}

// next takes c if it comes next.
func (p *lines) next(c byte) bool {
	p.space()
	if len(p.b) == 0 || p.b[0] != c {
		return false
	}
	p.b = p.b[1:]
	return true
}

// string reads a string, which aliases the line or the arena. what is for the error.
func (p *lines) string(what string) ([]byte, *Error) {
	if !p.next('"') {
		return nil, badLine("%s is no string, or the line is cut off", what)
	}
	for i, ch := range p.b {
		switch {
		case ch == '"':
			s := p.b[:i:i]
			p.b = p.b[i+1:]
			return s, nil
		case ch == '\\':
			return p.escaped(i, what)
		case ch < ' ':
			return nil, badLine("%s holds a control character, which JSON wants escaped", what)
		}
	}
	return nil, badLine("%s does not end, or the line is cut off", what)
}

// escaped reads the rest of a string, from the first escape in it, at i, on.
func (p *lines) escaped(i int, what string) ([]byte, *Error) {
	at := len(p.arena)
	out := append(p.arena, p.b[:i]...)
	rest := p.b[i:]
	for len(rest) > 0 {
		ch := rest[0]
		switch {
		case ch == '"':
			p.b, p.arena = rest[1:], out
			return out[at:len(out):len(out)], nil
		case ch < ' ':
			return nil, badLine("%s holds a control character, which JSON wants escaped", what)
		case ch != '\\':
			out, rest = append(out, ch), rest[1:]
			continue
		}
		r, n := unescape(rest)
		if n == 0 {
			return nil, badLine("%s has a broken escape", what)
		}
		out, rest = utf8.AppendRune(out, r), rest[n:]
	}
	return nil, badLine("%s does not end, or the line is cut off", what)
}

// unescape reads the escape at the front of b, and its length, 0 if it is none.
func unescape(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return 0, 0
	}
	if i := bytes.IndexByte([]byte(`"\/bfnrt`), b[1]); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), 2
	}
	high, ok := hex4(b)
	switch {
	case !ok:
		return 0, 0
	case !utf16.IsSurrogate(high):
		return high, 6
	}
	low, ok := hex4(b[6:])
	if both := utf16.DecodeRune(high, low); ok && both != utf8.RuneError {
		return both, 12
	}
	return 0, 0 // half a character
}

// hex4 reads \uXXXX.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, ch := range b[2:6] {
		switch {
		case ch >= '0' && ch <= '9':
			ch -= '0'
		case ch|0x20 >= 'a' && ch|0x20 <= 'f':
			ch = ch | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(ch)
	}
	return r, true
}

// AppendChange appends a change as a line of a batch.
func AppendChange(dst []byte, c *Change) []byte {
	dst = AppendJSON(append(dst, `{"key":`...), c.Key)
	switch {
	case c.Delete:
		dst = append(dst, `,"delete":true`...)
	case utf8.Valid(c.Value):
		dst = AppendJSON(append(dst, `,"value":`...), string(c.Value))
	default:
		dst = append(dst, `,"value_base64":"`...)
		dst = append(base64.StdEncoding.AppendEncode(dst, c.Value), '"')
	}
	return append(dst, "}\n"...)
}

// AppendJSON appends a JSON string.
func AppendJSON(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch ch := s[i]; {
		case ch == '"' || ch == '\\':
			dst = append(dst, '\\', ch)
		case ch == '\n':
			dst = append(dst, `\n`...)
		case ch < ' ' || ch == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[ch>>4], hex[ch&15])
		default:
			dst = append(dst, ch)
		}
	}
	return append(dst, '"')
}
