package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"tidal/node/api"
)

func someRows() []api.Row {
	return []api.Row{
		{Key: "a/1", Value: []byte("one"), Version: api.Version{Table: 2, Index: 17}},
		{Key: "é<&\"\n", Version: api.Version{Table: 2, Index: 18}},
	}
}

func TestScan(t *testing.T) {
	const rows = `{"key":"a/1","version":"2-11","value_base64":"b25l"},{"key":"é<&\"\n","version":"2-12","value_base64":""}`
	g := newRig(t)
	g.resp = api.Response{Owner: "b", Rows: someRows(), Lag: 5}
	g.born = api.Position{Table: 2, Index: 19}
	w := g.ask("GET", rowsT, "", as("reader"))
	if w.Code != http.StatusOK || w.Body.String() != `{"rows":[`+rows+"]}\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", api.HeaderOwner: "b", api.HeaderLag: "", "Link": "", api.HeaderPosition: "2-13",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if q := g.req; q.Op != api.OpScan || q.Table != "t" || q.Range != (api.Range{Limit: 1000}) || q.Local || q.Key != "" {
		t.Errorf("request %+v", q)
	}
	g.resp.More = true
	w = g.ask("GET", rowsT+"?prefix=a&limit=2&consistency=local", "")
	if want := `{"rows":[` + rows + `],"next":"é<&\"\n"}` + "\n"; w.Body.String() != want {
		t.Errorf("%s, want %s", w.Body, want)
	}
	if w.Header().Get(api.HeaderLag) != "5" || w.Header().Get(api.HeaderOwner) != "" || !g.req.Local {
		t.Errorf("%v, %+v", w.Header(), g.req)
	}
	link := w.Header().Get("Link")
	next, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	if g.ask("GET", next, ""); !ok || g.req.Range != (api.Range{From: "é<&\"\n\x00", To: "b", Limit: 2}) || !g.req.Local {
		t.Errorf("link %q asks for %+v", link, g.req)
	}
	w = g.ask("GET", rowsT, "", header("Accept: text/html, application/x-ndjson;q=0.9"))
	if w.Body.String() != strings.Replace(rows, "},{", "}\n{", 1)+"\n" || w.Header().Get("Content-Type") != "application/x-ndjson" || w.Header().Get("Link") == "" {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
	g.resp = api.Response{}
	if w = g.ask("GET", rowsT, ""); w.Body.String() != `{"rows":[]}`+"\n" {
		t.Errorf("no rows: %s", w.Body)
	}
	if w = g.ask("HEAD", rowsT, ""); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("head: %d %q", w.Code, w.Body)
	}
}

func TestScanRange(t *testing.T) {
	for query, want := range map[string]api.Range{
		"":                       {Limit: 1000},
		"prefix=a%2F":            {From: "a/", To: "a0", Limit: 1000},
		"prefix=%F4%8F%BF%BF":    {From: "\U0010ffff", To: "\xf4\x8f\xbf\xc0", Limit: 1000},
		"from=b&to=c":            {From: "b", To: "c", Limit: 1000},
		"prefix=b&from=a&to=z":   {From: "b", To: "c", Limit: 1000},
		"prefix=b&from=bb&to=bc": {From: "bb", To: "bc", Limit: 1000},
		"after=b&from=a":         {From: "b\x00", Limit: 1000},
		"after=b&from=b":         {From: "b\x00", Limit: 1000},
		"after=b&from=c":         {From: "c", Limit: 1000},
		"after=&prefix=&to=":     {Limit: 1000},
		"limit=10000":            {Limit: 10000},
		"after=" + strings.Repeat("k", api.MaxKey): {From: strings.Repeat("k", api.MaxKey) + "\x00", Limit: 1000},
	} {
		g := newRig(t)
		if w := g.ask("GET", rowsT+"?"+query, ""); w.Code != http.StatusOK || g.req.Range != want {
			t.Errorf("%q: %d, %+v, want %+v", query, w.Code, g.req, want)
		}
	}
	for query, want := range map[string]string{
		"limit=0": "limit", "limit=10001": "10000", "limit=many": `"many"`, "limit=": "limit", "limit=-1": "limit", "limit=1e3": "limit",
		"after=%ff": "after", "prefix=" + strings.Repeat("k", api.MaxKey+1): "prefix", "to=a&to=b": "2 times", "form=a": `"form"`,
		"consistency=strong": "strong", "reverse=true": "prefix, from, to, after, limit, consistency", "a=%zz": "not well formed",
	} {
		g := newRig(t)
		w := g.ask("GET", rowsT+"?"+query, "")
		if p := problemOf(t, w); p.Code != api.CodeBadRequest || !strings.Contains(p.Detail, want) || g.req != nil {
			t.Errorf("%q: %+v, want %q", query, p, want)
		}
	}
	if p := problemOf(t, newRig(t).ask("GET", rowsT+"?"+url.Values{"prefix": {"a"}}.Encode(), "", header("If-Match: *"))); p.Code != api.CodeBadRequest {
		t.Errorf("%+v", p)
	}
}
