package main

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/client"
)

// benchRest is how long a client waits after an attempt that met nobody: that
// comes back at once, and asking on would only count how fast.
const benchRest = 50 * time.Millisecond

// bench is one run of `tidal bench`.
type bench struct {
	plan        benchPlan
	cl          *client.Client
	tables      []string
	value       []byte
	write, read *series
	out         benchOut
}

func newBench(plan benchPlan, cl *client.Client) *bench {
	b := &bench{plan: plan, cl: cl, value: make([]byte, plan.Size)}
	_, _ = crand.Read(b.value) // never fails; random, so that nothing is gained by compressing it
	b.forget()
	return b
}

// forget drops what was counted.
func (b *bench) forget() {
	b.write, b.read = newSeries(), newSeries()
	b.out = benchOut{Cluster: b.out.Cluster, Endpoints: b.out.Endpoints, Plan: b.plan}
}

// row names a row by its number.
func (b *bench) row(n int) (table, key string) {
	return b.tables[n%len(b.tables)], fmt.Sprintf("k%08d", n)
}

// fill writes every row once.
func (b *bench) fill(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range b.plan.workers() {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= b.plan.Keys {
					return
				}
				if err := b.fillRow(ctx, n); err != nil {
					cancel(fmt.Errorf("write the rows to read: %w", err))
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// fillRow writes a row, and again if that was refused for now.
func (b *bench) fillRow(ctx context.Context, n int) error {
	table, key := b.row(n)
	for try := 0; ; try++ {
		_, err := b.cl.Put(ctx, table, key, b.value, client.WriteOptions{})
		var e *api.Error
		if err == nil || try == 20 || errors.As(err, &e) && e.Outcome() == api.OutcomeDone {
			return err
		}
		if !rest(ctx, 2*benchRest) {
			return ctx.Err()
		}
	}
}

// load has the clients work for a while, or until ctx ends, and notes how long that
// was. The error is ctx's.
func (b *bench) load(ctx context.Context, length time.Duration, say func(since time.Duration)) error {
	began := time.Now()
	d := &due{rate: b.plan.Rate, began: began, end: began.Add(length)}
	var wg sync.WaitGroup
	for i := range b.plan.workers() {
		reads := b.plan.Reads / 100
		switch {
		case i < b.plan.Writers:
			reads = 0
		case i < b.plan.Writers+b.plan.Readers:
			reads = 1
		}
		wg.Go(func() { b.work(ctx, d, reads) })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	tick := time.NewTicker(benchSay)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			say(time.Since(began))
			continue
		case <-done:
		}
		b.out.finish(b, time.Since(began))
		return ctx.Err()
	}
}

// work is one client's.
func (b *bench) work(ctx context.Context, d *due, reads float64) {
	for {
		from, more := d.next(ctx)
		if !more {
			return
		}
		table, key := b.row(rand.IntN(b.plan.Keys)) //nolint:gosec // any row will do
		var err error
		s := b.write
		if reads > 0 && rand.Float64() < reads { //nolint:gosec // the mix is no secret
			s = b.read
			_, err = b.cl.Get(ctx, table, key, client.ReadOptions{Local: b.plan.Local})
		} else {
			_, err = b.cl.Put(ctx, table, key, b.value, client.WriteOptions{})
		}
		if ctx.Err() != nil {
			return // nobody waited for this one
		}
		s.note(time.Since(from), err)
		if errors.Is(err, client.ErrUnreachable) {
			rest(ctx, benchRest)
		}
	}
}

// due says when requests are to be sent.
type due struct {
	rate       float64 // 0: as soon as somebody asks
	began, end time.Time
	taken      atomic.Int64
}

// next returns when the next request is due, once it is, so that its time counts from
// there; false: there are no more.
func (d *due) next(ctx context.Context) (time.Time, bool) {
	now := time.Now()
	if d.rate == 0 {
		return now, now.Before(d.end) && ctx.Err() == nil
	}
	seconds := float64(d.taken.Add(1)-1) / d.rate // which may be past what a Duration holds
	if seconds >= d.end.Sub(d.began).Seconds() || now.After(d.end) {
		rest(ctx, d.end.Sub(now)) // else the rate would be that of a shorter time
		return d.end, false
	}
	at := d.began.Add(time.Duration(seconds * float64(time.Second)))
	return at, rest(ctx, at.Sub(now))
}

// rest waits; false: ctx ended.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
