package rafthost

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/internal/store"
)

// snapshotsAtOnce is how many snapshots a node sends at a time, and how many it
// takes. One is enough to fill a disk's and a line's time, and lets each end as
// soon as it can.
const snapshotsAtOnce = 1

// defaultRate is how many bytes a second a node sends of snapshots.
const defaultRate = 64 << 20

// Carrier brings the parts of a snapshot to a node, in order, until next returns
// io.EOF. It returns nil once the snapshot is the state of its replica there.
type Carrier func(ctx context.Context, node string, next func() ([]byte, error)) error

// OutboxOptions are what an Outbox needs.
type OutboxOptions struct {
	DB      *store.DB
	Carrier Carrier
	Rate    int64 // bytes a second; 0: 64 MiB
	Log     *slog.Logger
	Defect  Defect
}

// Outbox sends snapshots, in the order in which they were asked for. It implements
// Shipper.
type Outbox struct {
	o      OutboxOptions
	wake   chan struct{}
	sent   atomic.Uint64
	failed atomic.Uint64
	bytes  atomic.Uint64

	mu struct {
		sync.Mutex
		queue   []Shipment
		running int
	}
}

// NewOutbox returns an empty Outbox.
func NewOutbox(o OutboxOptions) *Outbox {
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	return &Outbox{o: o, wake: make(chan struct{}, 1)}
}

// Ship implements Shipper. A shipment to a replica that one waits for already, of
// an older term, takes its place.
func (b *Outbox) Ship(s Shipment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.mu.queue {
		if q.Group == s.Group && q.To == s.To {
			b.mu.queue[i] = s
			return
		}
	}
	b.mu.queue = append(b.mu.queue, s)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Waiting returns how many snapshots are being sent or wait for it.
func (b *Outbox) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.queue) + b.mu.running
}

// Sent returns how many snapshots were sent and taken, how many ended otherwise,
// and the bytes of both.
func (b *Outbox) Sent() (taken, failed, bytes uint64) {
	return b.sent.Load(), b.failed.Load(), b.bytes.Load()
}

// take returns the next shipment, if there is one.
func (b *Outbox) take() (Shipment, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.queue) == 0 {
		return Shipment{}, false
	}
	s := b.mu.queue[0]
	b.mu.queue = b.mu.queue[1:]
	b.mu.running++
	return s, true
}

func (b *Outbox) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.running--
}

// Run sends what comes until ctx ends, and tells h of every end.
func (b *Outbox) Run(ctx context.Context, h *Host) error {
	for {
		s, ok := b.take()
		if !ok {
			select {
			case <-b.wake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		err := b.send(ctx, s)
		b.done()
		if err == nil {
			b.sent.Add(1)
		} else {
			b.failed.Add(1)
		}
		b.log(ctx, s, err)
		if b.report(ctx, h, s, err == nil) {
			return nil
		}
	}
}

func (b *Outbox) log(ctx context.Context, s Shipment, err error) {
	if err != nil {
		b.o.Log.WarnContext(ctx, "snapshot not taken", "group", s.Group, "to", s.Node, "error", err.Error())
		return
	}
	b.o.Log.InfoContext(ctx, "snapshot sent", "group", s.Group, "to", s.Node)
}

// report says how a shipment ended until it is heard, and reports whether ctx or
// the host has ended.
func (b *Outbox) report(ctx context.Context, h *Host, s Shipment, taken bool) (ended bool) {
	for {
		err := h.ReportSnapshot(s, taken)
		if !errors.Is(err, ErrBusy) {
			return err != nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return true
		}
	}
}

func (b *Outbox) send(ctx context.Context, s Shipment) error {
	e, err := NewExport(b.o.DB, s, b.o.Defect)
	if err != nil {
		return err
	}
	p := pacer{rate: b.o.Rate}
	err = b.o.Carrier(ctx, s.Node, func() ([]byte, error) {
		part, perr := e.Next()
		if perr != nil {
			return nil, perr // io.EOF too
		}
		b.bytes.Add(uint64(len(part)))
		return part, p.wait(ctx, len(part))
	})
	return errors.Join(err, e.Close())
}

// pacer keeps to a rate.
type pacer struct {
	rate  int64 // bytes a second
	since time.Time
	debt  time.Duration // that what was sent should have taken, from since
}

// wait waits until n more bytes may be sent.
func (p *pacer) wait(ctx context.Context, n int) error {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	ahead := p.debt - time.Since(p.since)
	if ahead < -time.Second { // what the other side did not take in time is not made up for
		p.debt -= ahead
		ahead = 0
	}
	p.debt += time.Duration(int64(n) * int64(time.Second) / p.rate)
	if ahead <= 0 {
		return nil
	}
	select {
	case <-time.After(ahead):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
