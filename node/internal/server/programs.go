package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"tidal/node/api"
)

// Programs are the binaries on the node's machine. Its errors are *api.Error.
type Programs interface {
	Programs(ctx context.Context) (api.Programs, error)
	// CheckProgram finds out whether a binary that is there can run the node.
	CheckProgram(ctx context.Context, sha256 string) (api.Program, error)
	// StageProgram takes a binary in, and checks it. An error of content is returned
	// as it is.
	StageProgram(ctx context.Context, sha256 string, content io.Reader) (api.Program, error)
}

// answerMost is how long a client may take to read an answer that came late.
const answerMost = time.Minute

func programsRoute() *route {
	return newRoute("/v1/node/binary",
		verb{http.MethodGet, needAdmin, (*exchange).listPrograms},
		verb{http.MethodPost, needAdmin, (*exchange).checkProgram},
		verb{http.MethodPut, needAdmin, (*exchange).putProgram},
	)
}

// listPrograms answers GET /v1/node/binary.
func (x *exchange) listPrograms() error {
	if _, err := x.query(); err != nil {
		return err
	}
	list, err := x.s.o.Programs.Programs(x.r.Context())
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, list)
}

// checkProgram answers POST /v1/node/binary.
func (x *exchange) checkProgram() error {
	if _, err := x.query(); err != nil {
		return err
	}
	body, err := x.body(maxOrder, "the check")
	if err != nil {
		return err
	}
	var c api.ProgramCheck
	if err = parseObject(body, &c, "the check", `"sha256"`); err != nil {
		return err
	}
	if err = api.CheckSHA256(c.SHA256); err != nil {
		return err
	}
	p, err := x.s.o.Programs.CheckProgram(x.r.Context(), c.SHA256)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, p)
}

// putProgram answers PUT /v1/node/binary, whose body is not held in memory.
func (x *exchange) putProgram() error {
	q, err := x.query("sha256")
	if err != nil {
		return err
	}
	if err = api.CheckSHA256(q.Get("sha256")); err != nil {
		return err
	}
	if x.r.ContentLength > api.MaxProgram {
		return tooLarge("the binary", api.MaxProgram)
	}
	s := &upload{x: x, left: api.MaxProgram}
	p, err := x.s.o.Programs.StageProgram(x.r.Context(), q.Get("sha256"), s)
	// Sending it may have taken longer than an answer has by itself. A connection that
	// knows no deadlines has none.
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(answerMost))
	if s.err != nil {
		return s.err
	}
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, p)
}

// upload is a body that is passed on as it comes, each chunk of which the client may
// take its time for.
type upload struct {
	x    *exchange
	left int   // bytes that may still come
	mark int   // of the chunk that is on its way, so many bytes have come
	err  error // why it cannot be read
}

// Read implements io.Reader.
func (s *upload) Read(p []byte) (int, error) {
	n, err := s.x.r.Body.Read(p[:min(len(p), s.left+1)])
	if s.left -= n; s.left < 0 {
		s.err = tooLarge("the binary", api.MaxProgram)
		return 0, s.err
	}
	if s.mark += n; s.mark >= bodyChunk {
		s.mark = 0
		s.x.expectBody()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = bodyError(err)
		return n, s.err
	}
	return n, err
}
