package server

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer writes the answers of a lane, one after the other. It implements
// http.ResponseWriter and what http.ResponseController asks for.
type answer struct {
	l      *lane
	header http.Header
	out    []byte // not written yet
	status int    // 0: the answer has not begun
	left   int    // of the body, as it was announced; what is more is dropped
	last   bool   // the connection ends with this answer
	err    error  // of a write
}

func (a *answer) of(l *lane) { a.l, a.header = l, make(http.Header, 8) }

// reset begins another answer.
func (a *answer) reset() {
	clear(a.header)
	a.status, a.left, a.last = 0, 0, false
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status != 0 {
		return
	}
	a.status = status
	length := a.header["Content-Length"]
	switch {
	case a.l.req.Method == http.MethodHead, status == http.StatusNoContent, status == http.StatusNotModified:
	case len(length) == 1:
		a.left, _ = strconv.Atoi(length[0])
	default:
		a.header["Content-Length"] = []string{"0"} // the handlers of rows always say it
	}
	a.last = len(a.header["Connection"]) > 0
	b := append(a.out, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(b, ' '), http.StatusText(status)...)
	b = append(b, "\r\nDate: "...)
	b = time.Now().UTC().AppendFormat(b, http.TimeFormat)
	b = append(b, "\r\n"...)
	for name, values := range a.header {
		for _, v := range values {
			b = append(append(b, name...), ": "...)
			b = append(append(b, oneLine(v)...), "\r\n"...)
		}
	}
	a.out = append(b, "\r\n"...)
}

// oneLine keeps a value from ending its line.
func oneLine(v string) string {
	if strings.ContainsAny(v, "\r\n") {
		return strings.NewReplacer("\r", " ", "\n", " ").Replace(v)
	}
	return v
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if len(b) > a.left {
		return 0, http.ErrContentLength
	}
	a.left -= len(b)
	if len(a.out)+len(b) <= laneKeeps {
		a.out = append(a.out, b...)
		return len(b), nil
	}
	if !a.write() {
		return 0, a.err
	}
	n, err := a.l.nc.Write(b)
	a.err = err
	return n, err
}

// write writes what is collected.
func (a *answer) write() bool {
	if a.err == nil && len(a.out) > 0 {
		_, a.err = a.l.nc.Write(a.out)
	}
	if a.out = a.out[:0]; cap(a.out) > 2*laneKeeps {
		a.out = nil
	}
	return a.err == nil
}

// flush ends the answer, and reports whether another may follow.
func (a *answer) flush() bool {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.left > 0 && a.err == nil {
		a.err = io.ErrUnexpectedEOF
	}
	return a.write() && !a.last
}

// FlushError writes what there is of the answer.
func (a *answer) FlushError() error {
	a.write()
	return a.err
}

// SetReadDeadline has nothing to do: the request is there.
func (a *answer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for the rest of this answer.
func (a *answer) SetWriteDeadline(t time.Time) error {
	a.l.writeBy = t
	return a.l.nc.SetWriteDeadline(t)
}
