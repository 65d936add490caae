package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"tidal/node/api"
)

func TestParseChanges(t *testing.T) {
	long := strings.Repeat("v", 3000)
	for body, want := range map[string][]api.Change{
		`{"key":"k","value":"v"}`:                                 {{Key: "k", Value: []byte("v")}},
		"{\"key\":\"k\",\"delete\":true}\n":                       {{Key: "k", Delete: true}},
		`{"key":"k","value_base64":"AAH/"}`:                       {{Key: "k", Value: []byte{0, 1, 0xff}}},
		`{"value":"","key":"a/b"}`:                                {{Key: "a/b", Value: []byte{}}},
		" \t{ \"key\" : \"k\" ,\t\"value\" : \"v\" } \r\n\n \r\n": {{Key: "k", Value: []byte("v")}},
		`{"key":"\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t","value":"` + long + `\u0000"}`: {
			{Key: "é😀\"\\/\b\f\n\r\t", Value: []byte(long + "\x00")},
		},
		"{\"key\":\"é\",\"value\":\"\u2028\"}\n{\"key\":\"é\",\"delete\":true}": {
			{Key: "é", Value: []byte("\u2028")}, {Key: "é", Delete: true},
		},
	} {
		got, err := api.ParseChanges([]byte(body), 1)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", body, got, err)
		}
	}
}

func TestParseChangesRefuses(t *testing.T) {
	const good = `{"key":"k","value":"v"}` + "\n"
	for body, want := range map[string]string{
		"":                                     "a batch has at least one line",
		"\n \r\n":                              "a batch has at least one line",
		good + "[]":                            "line 2: it is no JSON object",
		good + "\n" + `{"key":"k","value":"v"`: "line 3: a comma or } is missing, or the line is cut off",
		`{"key":"k"`:                           "line 1: a comma or }",
		`{"key":"k`:                            "line 1: key does not end",
		`{"key":"k"}`:                          "line 1: it has not one of value, value_base64 and delete",
		`{}`:                                   "line 1: it has no key",
		`{"value":"v"}`:                        "it has no key",
		`{"key":"","value":"v"}`:               "the row's key is empty",
		`{"key":"` + strings.Repeat("k", 1025) + `","delete":true}`:             "the row's key has 1025 bytes",
		`{"key":"k","value":"` + strings.Repeat("v", api.MaxValue+1) + `"}`:     "the row's value has 1048577 bytes: the limit is 1048576",
		`{"key":"k","value":"v","delete":true}`:                                 "it has not one of",
		`{"key":"k","value":"v","value_base64":"dg=="}`:                         "it has not one of",
		`{"key":"k","key":"k","value":"v"}`:                                     "a field stands twice",
		`{"key":"k","value":"v","version":"2-1"}`:                               `unknown field "version"`,
		`{"Key":"k","value":"v"}`:                                               `unknown field "Key"`,
		`{"key":"k","value":7}`:                                                 "value is no string",
		`{"key":"k","value":null}`:                                              "value is no string",
		`{"key":"k","delete":false}`:                                            "delete is not true",
		`{"key":"k","delete":"true"}`:                                           "delete is not true",
		`{"key":"k","value_base64":"dg"}`:                                       "value_base64 is not in base64",
		`{"key":"k","value_base64":"_w=="}`:                                     "value_base64 is not in base64",
		`{"key":"k","value_base64":"d\ng=="}`:                                   "value_base64 is not in base64",
		`{"key" "k","value":"v"}`:                                               `a colon is missing after "key"`,
		`{"key":"k","value":"v"} {}`:                                            "something follows",
		`{"key":"k",}`:                                                          "a field's name is no string",
		`{,"key":"k","value":"v"}`:                                              "a field's name is no string",
		`{"key":"k","value":"\x"}`:                                              "value has a broken escape",
		`{"key":"k","value":"\u12"}`:                                            "value has a broken escape",
		`{"key":"k","value":"\ud83d"}`:                                          "value has a broken escape",
		`{"key":"k","value":"\ude00\ud83d"}`:                                    "value has a broken escape",
		"{\"key\":\"k\",\"value\":\"\x00\"}":                                    "control character",
		"{\"key\":\"k\",\"value\":\"\\n\x00\"}":                                 "control character",
		"{\"key\":\"k\",\"value\":\"\xff\"}":                                    "it is not UTF-8",
		"\xef\xbb\xbf" + good:                                                   "line 1: it begins with a byte order mark",
		strings.Repeat(`{"key":"k","delete":true}`+"\n", api.MaxChanges) + good: "line 10001: a batch has up to 10000 changes",
	} {
		_, err := api.ParseChanges([]byte(body), 1)
		var e *api.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, want) || e.Hint == "" && e.Code != api.CodeTooLarge {
			t.Errorf("%.80q: %v, want %q", body, err, want)
		}
	}
	if _, err := api.ParseChanges([]byte(good+"x"), 7); err == nil || !strings.HasPrefix(err.Error(), "line 8: ") {
		t.Errorf("from line 7 on: %v", err)
	}
}

// plain is a change as encoding/json reads it.
type plain struct {
	Key    *string `json:"key"`
	Value  *string `json:"value"`
	Base64 *[]byte `json:"value_base64"` //nolint:tagliatelle // as the API has it
	Delete *bool   `json:"delete"`
}

// FuzzParseChanges: what is accepted means to encoding/json the same, and comes
// back as it was after AppendChange.
func FuzzParseChanges(f *testing.F) {
	for _, line := range []string{
		`{"key":"k","value":"v"}`, `{"key":"k","delete":true}`, `{"key":"k","value_base64":"AAH/"}`, " { \"key\" : \"\\u00e9\\ud83d\\ude00\\n\", \"value\":\"\"} \r\n\n",
		"{\"key\":\"k\",\"value\":\"\xff\"}", `{"key":"k","value":"\ud800"}`, `{"value_base64":"", "key":"\u0000"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := api.ParseChanges(bytes.Clone(body), 1)
		if err != nil {
			if api.CodeOf(err) == "" {
				t.Errorf("%v is no error of the API", err)
			}
			return
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		var again []byte
		for _, c := range got {
			var p plain
			if err = d.Decode(&p); err != nil {
				t.Fatalf("%q was accepted: %v", body, err)
			}
			if !utf8.ValidString(c.Key) || p.Key == nil || *p.Key != c.Key || c.Delete != (p.Delete != nil) {
				t.Fatalf("%q: %+v, %+v", body, c, p)
			}
			switch {
			case p.Value != nil && *p.Value != string(c.Value), p.Base64 != nil && !bytes.Equal(*p.Base64, c.Value):
				t.Fatalf("%q: %+v, %+v", body, c, p)
			}
			again = api.AppendChange(again, &c)
		}
		if _, err = d.Token(); !errors.Is(err, io.EOF) {
			t.Errorf("%q: more follows, %v", body, err)
		}
		back, err := api.ParseChanges(again, 1)
		if err != nil || len(back) != len(got) {
			t.Fatalf("%q: %v", again, err)
		}
		for i := range got {
			if got[i].Key != back[i].Key || got[i].Delete != back[i].Delete || !bytes.Equal(got[i].Value, back[i].Value) {
				t.Errorf("%+v came back as %+v", got[i], back[i])
			}
		}
	})
}
