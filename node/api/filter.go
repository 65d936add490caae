package api

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Filter is a condition on the rows of a list: words that must all hold.
//
//	web          the name has "web" in it
//	/^w.*b$/     the name matches a regular expression
//	owner=a      a field has the value
//	state!=serving
//	lag>1000     a number is larger; what is not known is never larger, nor smaller
//	!web         the opposite of any of them
type Filter struct {
	terms []term
}

type term struct {
	not   bool
	field string // "": the name
	op    string // "", "/", "=", "!=", ">", "<"
	value string
	low   string // value in lower case
	re    *regexp.Regexp
	num   float64
}

// Field is one field of a row.
type Field struct {
	Text string
	// Any is set instead of Text by a field that has many values: one of them is enough.
	Any []string
	// Number is what < and > look at; NaN: the field is none, or not known.
	Number float64
}

// NoNumber is a field without a number.
func NoNumber(text string) Field { return Field{Text: text, Number: math.NaN()} }

// maxFilter bounds a filter's text in bytes.
const maxFilter = 1 << 10

// ParseFilter reads a filter over a list that has these fields beside the name.
// The error has the code bad-request.
func ParseFilter(text string, fields []string) (Filter, error) {
	if len(text) > maxFilter {
		return Filter{}, badFilter("it is longer than %d bytes", maxFilter)
	}
	var f Filter
	for word := range strings.FieldsSeq(text) {
		t, err := parseTerm(word, fields)
		if err != nil {
			return Filter{}, err
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

func parseTerm(word string, fields []string) (term, error) {
	t := term{}
	body, not := strings.CutPrefix(word, "!")
	t.not, t.value = not, body
	if len(body) > 1 && body[0] == '/' {
		re, err := regexp.Compile("(?i)" + strings.TrimSuffix(body[1:], "/"))
		if err != nil {
			return t, badFilter("%s is no regular expression: %v", clip(body), err)
		}
		t.op, t.re = "/", re
		return t, nil
	}
	if i := strings.IndexAny(body, "=<>!"); i > 0 {
		t.field, t.op = body[:i], body[i:i+1]
		if strings.HasPrefix(body[i:], "!=") {
			t.op = "!="
		}
		t.value = body[i+len(t.op):]
		if err := t.check(fields); err != nil {
			return t, err
		}
	}
	t.low = strings.ToLower(t.value)
	return t, nil
}

func (t *term) check(fields []string) error {
	known := t.field == "name"
	for _, f := range fields {
		known = known || f == t.field
	}
	if !known {
		return badFilter("there is no field %q: the fields are name, %s", clip(t.field), strings.Join(fields, ", "))
	}
	if t.op == "!" {
		return badFilter("%s!%s: write %s!=%s", t.field, clip(t.value), t.field, clip(t.value))
	}
	if t.op == "<" || t.op == ">" {
		n, err := strconv.ParseFloat(t.value, 64)
		if err != nil {
			return badFilter("%s%s%s: want a number after %s", t.field, t.op, clip(t.value), t.op)
		}
		t.num = n
	}
	return nil
}

func badFilter(format string, args ...any) error {
	return &Error{
		Code: CodeBadRequest, Message: "the filter: " + fmt.Sprintf(format, args...),
		Hint: "words must all hold: web, /^w/, owner=a, state!=serving, lag>1000, !web",
	}
}

// Empty reports whether the filter lets everything through.
func (f Filter) Empty() bool { return len(f.terms) == 0 }

// Match reports whether a row passes; field returns one of its fields.
func (f Filter) Match(name string, field func(string) Field) bool {
	for i := range f.terms {
		if t := &f.terms[i]; t.holds(name, field) == t.not {
			return false
		}
	}
	return true
}

func (t *term) holds(name string, field func(string) Field) bool {
	if t.re != nil {
		return t.re.MatchString(name)
	}
	if t.op == "" {
		return strings.Contains(strings.ToLower(name), t.low)
	}
	v := NoNumber(name)
	if t.field != "name" {
		v = field(t.field)
	}
	switch t.op {
	case "=":
		return v.is(t.value)
	case "!=":
		return !v.is(t.value)
	case ">":
		return v.Number > t.num
	}
	return v.Number < t.num
}

func (v Field) is(value string) bool {
	for _, x := range v.Any {
		if strings.EqualFold(x, value) {
			return true
		}
	}
	return v.Any == nil && strings.EqualFold(v.Text, value)
}

// CompareNumbers orders numbers of which some are not known (NaN): those come last,
// whatever the direction.
func CompareNumbers(a, b float64, down bool) int {
	switch {
	case math.IsNaN(a) && math.IsNaN(b):
		return 0
	case math.IsNaN(a):
		return 1
	case math.IsNaN(b):
		return -1
	case down:
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}
