package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

const (
	streamPause  = time.Second     // without another attempt where there was no stream
	membersPause = 5 * time.Second // between two looks at who the members are
)

// streams are a client's streams, at most one to an endpoint, and what it knows of
// who owns what.
type streams struct {
	c      *Client
	ctx    context.Context //nolint:containedctx // of what dials: it ends with the client
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		spots  []*spot
		all    map[*stream]bool  // that stand, those that are left among them
		owners map[string]string // of tables, as last heard
		turn   int
		serial uint64    // of the certificates in use
		listed time.Time // when the members were last asked for
		closed bool
	}
}

// spot is an endpoint where streams are asked for.
type spot struct {
	endpoint string
	node     string        // that answers there, as far as known
	stream   *stream       // the last one; it may have ended
	dialling chan struct{} // closed when the attempt under way ends; nil: none is
	failed   time.Time     // the last attempt, if it failed
}

func (p *spot) usable() bool { return p.stream != nil && p.stream.usable() }

// idle reports whether an attempt to get a stream there makes sense. Where one broke
// just now it does not: others first. The stream itself says so, since who waited for
// its answer is told as soon as it breaks, and asks at once.
func (p *spot) idle(now time.Time) bool {
	failed := p.failed
	if p.stream != nil && p.stream.broke().After(failed) {
		failed = p.stream.broke()
	}
	return !p.usable() && p.dialling == nil && now.Sub(failed) >= streamPause
}

func newStreams(c *Client) *streams {
	ss := &streams{c: c}
	ss.ctx, ss.cancel = context.WithCancelCause(context.Background()) //nolint:forbidigo // streams serve one call after another
	ss.mu.all, ss.mu.owners = map[*stream]bool{}, map[string]string{}
	ss.mu.turn = rand.IntN(len(c.endpoints)) //nolint:gosec // many clients begin at different nodes
	for _, e := range c.endpoints {
		ss.mu.spots = append(ss.mu.spots, &spot{endpoint: e})
	}
	return ss
}

// close ends the streams and what is under way on them.
func (ss *streams) close() {
	ss.mu.Lock()
	ss.mu.closed = true
	all := ss.mu.all
	ss.mu.all = map[*stream]bool{}
	ss.mu.Unlock()
	ss.cancel(errClosed)
	for s := range all {
		s.end(errClosed)
	}
	ss.wg.Wait()
}

// pick returns the stream to the owner of a table, as far as that is known, or else the
// next in turn, as for the table "". If none stands it waits for one. nil: there is none
// to be had now.
func (ss *streams) pick(ctx context.Context, table string) *stream {
	ss.renew()
	for {
		s, dialled := ss.choose(table)
		if s != nil || dialled == nil {
			return s
		}
		select {
		case <-dialled:
		case <-ctx.Done():
			return nil
		}
	}
}

// choose returns a stream that stands, or what ends with an attempt to get one; neither
// if it makes no sense to try.
func (ss *streams) choose(table string) (*stream, <-chan struct{}) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	owner := ss.mu.owners[table]
	now := time.Now()
	var usable []*stream
	known := owner == ""
	for _, p := range ss.mu.spots {
		known = known || p.node == owner
		switch {
		case p.usable() && p.stream.node == owner:
			return p.stream, nil
		case p.usable():
			usable = append(usable, p.stream)
		case owner != "" && (p.node == owner || p.node == "") && p.idle(now):
			ss.dialLocked(p)
		}
	}
	if !known && now.Sub(ss.mu.listed) >= membersPause {
		ss.mu.listed = now
		ss.goLocked(ss.list)
	}
	ss.mu.turn++
	if len(usable) > 0 {
		return usable[ss.mu.turn%len(usable)], nil
	}
	return nil, ss.anyDialLocked(now)
}

// anyDialLocked returns what ends with an attempt to get a stream, which it begins
// unless one is under way; nil if it makes no sense to try anywhere.
func (ss *streams) anyDialLocked(now time.Time) <-chan struct{} {
	for _, p := range ss.mu.spots {
		if p.dialling != nil {
			return p.dialling
		}
	}
	for i := range ss.mu.spots {
		if p := ss.mu.spots[(ss.mu.turn+i)%len(ss.mu.spots)]; p.idle(now) {
			return ss.dialLocked(p)
		}
	}
	return nil
}

// dialLocked asks for a stream at a spot. What it returns is closed when that has ended.
func (ss *streams) dialLocked(p *spot) <-chan struct{} {
	dialled, serial := make(chan struct{}), ss.mu.serial
	p.dialling = dialled
	if !ss.goLocked(func() { ss.dial(p, serial) }) {
		p.dialling, p.failed = nil, time.Now()
		close(dialled)
	}
	return dialled
}

// goLocked runs f until the client is closed; false: it is.
func (ss *streams) goLocked(f func()) bool {
	if ss.mu.closed {
		return false
	}
	ss.wg.Go(f)
	return true
}

func (ss *streams) dial(p *spot, serial uint64) {
	s, err := dialStream(ss.ctx, p.endpoint, ss.c.o.TLS)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	close(p.dialling)
	p.dialling = nil
	if err != nil {
		p.failed = time.Now()
		return
	}
	p.node, p.stream, p.failed = s.node, s, time.Time{}
	if serial != ss.mu.serial {
		s.leave() // it was made with what counts no more
	}
	if !ss.goLocked(func() { ss.run(s) }) {
		s.end(errClosed)
		return
	}
	ss.mu.all[s] = true
}

func (ss *streams) run(s *stream) {
	s.run()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.mu.all, s)
}

// list asks who the members are, so that an owner can be found that no endpoint is of.
func (ss *streams) list() {
	var status api.Status
	if err := ss.c.get(ss.ctx, "/cluster/status?limit=0", &status); err != nil {
		return // it is asked again
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, m := range status.Members {
		known := m.Lease == nil
		for _, p := range ss.mu.spots {
			known = known || p.node == m.Node || p.endpoint == m.Lease.Address
		}
		if !known {
			ss.mu.spots = append(ss.mu.spots, &spot{endpoint: m.Lease.Address, node: m.Node})
		}
	}
}

// renew leaves the streams that were made with other certificates than those of now.
func (ss *streams) renew() {
	if ss.c.o.Renewed == nil {
		return
	}
	serial := ss.c.o.Renewed()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if serial == ss.mu.serial {
		return
	}
	ss.mu.serial = serial
	for s := range ss.mu.all {
		s.leave()
	}
}

// learn notes who owns a table; "": not who was thought to.
func (ss *streams) learn(table, owner string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if owner == "" {
		delete(ss.mu.owners, table)
	} else if ss.mu.owners[table] != owner {
		ss.mu.owners[table] = owner
	}
}

// row does a request for a row on streams, until there is an answer or nothing is to be
// had of them: done is false then, t tells what came of the attempts, and HTTP is left.
func (ss *streams) row(ctx context.Context, q *wire.ClientRequest, t *tries) (r rowAnswer, done bool, err error) {
	for {
		table := q.Table
		if q.Local {
			table = "" // any node will do
		}
		s := ss.pick(ctx, table)
		if s == nil {
			return r, false, nil
		}
		r, err := s.row(ctx, q)
		if err == nil {
			if !q.Local {
				ss.learn(q.Table, r.Owner)
			}
			return r, true, nil
		}
		e, answered := errors.AsType[*api.Error](err)
		switch {
		case answered && e.Owner != "":
			ss.learn(q.Table, e.Owner)
		case !answered:
			ss.learn(q.Table, "")
		}
		wait, again := t.failed(s.endpoint, call{writes: q.Op.Writes(), resend: q.Idem != "" || !q.Op.Writes()}, err)
		if ss.c.o.Once || !again || !sleep(ctx, wait) {
			return r, true, t.final(ctx, err)
		}
	}
}

// row sends a request and waits for its answer.
func (s *stream) row(ctx context.Context, q *wire.ClientRequest) (rowAnswer, error) {
	payload, err := s.call(ctx, q)
	if err != nil {
		return rowAnswer{}, err
	}
	resp, err := wire.DecodeClientResponse(payload)
	if err != nil {
		return rowAnswer{}, fmt.Errorf("read the answer: %w", err)
	}
	r := rowAnswer{Response: resp.Response, position: resp.Position, node: s.node}
	if !q.Op.Writes() && !resp.Found {
		return r, &api.Error{Code: api.CodeRowNotFound, Message: "there is no row with this key in the table " + q.Table}
	}
	return r, nil
}
