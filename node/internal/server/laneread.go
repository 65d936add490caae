package server

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// plainHeaders is how many headers a plain request has at most.
const plainHeaders = 24

// plain is a request for one row that is just as most are. It is used for one after
// the other.
type plain struct {
	*http.Request

	url    url.URL
	values [plainHeaders][1]string // of the headers
	body   body
	bytes  []byte // of the body
}

// body is the body of a plain request, all of which is there.
type body struct{ bytes.Reader }

// Close implements io.Closer.
func (*body) Close() error { return nil }

// like begins with what the requests of a connection have in common.
func (p *plain) like(r *http.Request) {
	p.Request = r
	r.Header = make(http.Header, plainHeaders)
	r.URL = &p.url
	r.TransferEncoding, r.Trailer = nil, nil
}

// headOf returns the length of the head that b begins with, -1 if that is not there whole.
func headOf(b []byte) int {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return -1
	}
	return end + 4
}

// bareLF reports whether a line ends otherwise than headOf expects.
func bareLF(b []byte) bool {
	return bytes.Count(b, []byte("\n")) != bytes.Count(b, []byte("\r\n"))
}

// parse reads the head of a request. It reports false if net/http might make anything
// else of it.
func (p *plain) parse(head []byte) bool {
	line, rest, _ := strings.Cut(string(head[:len(head)-2]), "\r\n")
	if !p.first(line) {
		return false
	}
	clear(p.Header)
	p.Host, p.ContentLength = "", 0
	for n := 0; rest != ""; n++ {
		line, rest, _ = strings.Cut(rest, "\r\n")
		if n == plainHeaders || !p.header(line, &p.values[n]) {
			return false
		}
	}
	return p.Host != "" && (p.ContentLength == 0 || p.Method == http.MethodPut)
}

// first reads the first line.
func (p *plain) first(line string) bool {
	method, line, _ := strings.Cut(line, " ")
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
		p.Method = method
	default:
		return false
	}
	target, ok := strings.CutSuffix(line, " HTTP/1.1")
	if !ok || !isRow(target) {
		return false
	}
	p.RequestURI = target
	if each(target, pathByte) {
		p.url = url.URL{Path: target} // what ParseRequestURI makes of it
		return true
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return false
	}
	p.url = *u
	return true
}

// isRow reports whether a target is that of a row.
func isRow(target string) bool {
	rest, ok := strings.CutPrefix(target, "/v1/tables/")
	_, rest, more := strings.Cut(rest, "/")
	return ok && more && strings.HasPrefix(rest, "rows/") && each(target, visibleByte)
}

// header reads a line with a header.
func (p *plain) header(line string, value *[1]string) bool {
	name, v, ok := strings.Cut(line, ":")
	v = strings.Trim(v, " \t")
	if !ok || name == "" || !each(name, nameByte) || !each(v, valueByte) {
		return false
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	switch name {
	case "Host":
		if p.Host != "" || v == "" || !each(v, hostByte) {
			return false
		}
		p.Host = v
		return true
	case "Content-Length":
		n, ok := length(v)
		if !ok {
			return false
		}
		p.ContentLength = n
	case "Connection":
		if !strings.EqualFold(v, "keep-alive") {
			return false
		}
	case "Transfer-Encoding", "Expect", "Upgrade", "Trailer":
		return false
	}
	if _, twice := p.Header[name]; twice {
		return false
	}
	value[0] = v
	p.Header[name] = value[:]
	return true
}

// take gives the request its body.
func (p *plain) take(b []byte) {
	p.Body = http.NoBody
	if len(b) > 0 {
		p.bytes = append(p.bytes[:0], b...)
		p.body.Reset(p.bytes)
		p.Body = &p.body
	}
}

// length reads a Content-Length.
func length(v string) (int64, bool) {
	if v == "" || len(v) > 9 { // no longer one is plain
		return 0, false
	}
	n := int64(0)
	for _, c := range []byte(v) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

func each(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

func alnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func pathByte(c byte) bool    { return alnum(c) || strings.IndexByte("-_./~:@$&+,;=", c) >= 0 }
func visibleByte(c byte) bool { return c > ' ' && c < 0x7f }
func nameByte(c byte) bool    { return alnum(c) || c == '-' }
func valueByte(c byte) bool   { return c >= ' ' && c < 0x7f || c == '\t' }
func hostByte(c byte) bool    { return alnum(c) || strings.IndexByte("-_.:[]", c) >= 0 }
