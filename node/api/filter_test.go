package api_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"tidal/node/api"
)

func TestFilter(t *testing.T) {
	fields := []string{"state", "owner", "lag", "node"}
	row := func(f string) api.Field {
		return map[string]api.Field{
			"state": api.NoNumber("serving"), "owner": api.NoNumber("a"), "lag": {Text: "1200", Number: 1200},
			"node": {Any: []string{"a", "b"}, Number: math.NaN()},
		}[f]
	}
	unknown := func(string) api.Field { return api.NoNumber("-") }
	for _, tt := range []struct {
		filter string
		want   bool
	}{
		{"", true},
		{"ord", true},
		{"ORD", true},
		{"xyz", false},
		{"!xyz", true},
		{"ord ers", true},
		{"ord xyz", false},
		{"/^o.*s$/", true},
		{"/^rd/", false},
		{"!/^rd/", true},
		{"owner=a", true},
		{"owner=A", true},
		{"owner!=a", false},
		{"owner=b", false},
		{"!owner=b", true},
		{"node=b", true},
		{"node=c", false},
		{"node!=c", true},
		{"lag>1000", true},
		{"lag<1000", false},
		{"!lag<1000", true},
		{"name=orders", true},
		{"state=serving lag>1 !web", true},
	} {
		f, err := api.ParseFilter(tt.filter, fields)
		if err != nil {
			t.Errorf("%q: %v", tt.filter, err)
			continue
		}
		if got := f.Match("orders", row); got != tt.want {
			t.Errorf("%q: %t", tt.filter, got)
		}
	}
	for _, text := range []string{"lag>0", "lag<5"} {
		f, err := api.ParseFilter(text, fields)
		if err != nil || f.Match("orders", unknown) {
			t.Errorf("%q lets a lag through that nobody knows (%v)", text, err)
		}
	}
	for _, text := range []string{"/(/", "size=3", "lag>x", "lag>", "owner!a", string(make([]byte, 2000))} {
		if _, err := api.ParseFilter(text, fields); api.CodeOf(err) != api.CodeBadRequest {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestUnknownNumbersComeLast(t *testing.T) {
	for _, down := range []bool{false, true} {
		list := []float64{math.NaN(), 3, 1, math.NaN(), 2}
		slices.SortFunc(list, func(a, b float64) int { return api.CompareNumbers(a, b, down) })
		want := []float64{1, 2, 3}
		if down {
			slices.Reverse(want)
		}
		if !slices.Equal(list[:3], want) || !math.IsNaN(list[3]) || !math.IsNaN(list[4]) {
			t.Errorf("down %t: %v", down, list)
		}
	}
}

func TestSort(t *testing.T) {
	q := api.TableQuery{Sort: "-lag"}
	if column, down, err := q.SortKey(); err != nil || column != "lag" || !down {
		t.Error(column, down, err)
	}
	q.Sort = ""
	if column, down, err := q.SortKey(); err != nil || column != "name" || down {
		t.Error(column, down, err)
	}
	q.Sort = "-colour"
	if _, _, err := q.SortKey(); api.CodeOf(err) != api.CodeBadRequest {
		t.Error(err)
	}
}

func TestEventID(t *testing.T) {
	inc := api.Incarnation{Node: "a", Start: 1<<63 + 1, Suffix: 0xabc}
	got, n, err := api.ParseEventID(api.EventID(inc, 1<<60))
	if err != nil || got != inc || n != 1<<60 {
		t.Error(got, n, err)
	}
	for _, bad := range []string{"", "a", "a.1.2", "a.1.00000002/", "a.1.00000002/x", "a.1/3", "/3"} {
		if _, _, err := api.ParseEventID(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestEventsSayWhatHappened: each kind has a sentence of its own.
func TestEventsSayWhatHappened(t *testing.T) {
	seen := map[string]api.EventKind{}
	for _, k := range api.EventKinds() {
		e := api.Event{Kind: k, Time: time.Unix(0, 0), Member: "c", From: "a", To: "b", Tables: []string{"t"}, Count: 1, Why: "x"}
		text := e.String()
		if other, twice := seen[text]; text == "" || twice || k != api.EventHeartbeat && text == string(k) {
			t.Errorf("%s says %q, like %q", k, text, other)
		}
		seen[text] = k
		b, err := json.Marshal(e)
		var back api.Event
		if err == nil {
			err = json.Unmarshal(b, &back)
		}
		if err != nil || back.Kind != k || back.Tables[0] != "t" {
			t.Errorf("%s came back as %+v, %v", k, back, err)
		}
	}
	many := api.Event{Kind: api.EventOwner, From: "c", To: "a", Tables: []string{"t1", "t2"}, Count: 3333, Why: "c has no lease"}
	if got := many.String(); got != "3333 tables (t1 and more) from c to a: c has no lease" {
		t.Error(got)
	}
}
