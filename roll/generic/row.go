package generic

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/client"
)

// Row is a journal in a row of a cluster of tidal, where operators on all machines
// see it. Every change is made only to the version that it was worked out from. Whoever
// rolls writes it anew every few seconds: one that does not for api.RollSilence is
// taken for dead.
type Row struct {
	Client *client.Client
	Table  string
	Key    string

	looks time.Duration // between two looks at whether it is written; 0: a second
	rests time.Duration // 0: api.RollSilence
	mine  uint64        // epoch that this process holds

	seen struct {
		sync.Mutex
		write string    // the last one that Roll has seen
		since time.Time // when it saw that first
	}
}

// String names the journal.
func (r *Row) String() string { return "row " + r.Key + " of table " + r.Table }

// Close closes the client's connections.
func (r *Row) Close() { r.Client.Close() }

func (r *Row) read(ctx context.Context) (*book, client.WriteOptions, error) {
	row, err := r.Client.Get(ctx, r.Table, r.Key, client.ReadOptions{})
	o := client.WriteOptions{IfMatch: []api.Version{row.Version}}
	if api.CodeOf(err) == api.CodeRowNotFound {
		row.Value, o, err = nil, client.WriteOptions{IfAbsent: true}, nil
	}
	if err != nil {
		return nil, o, fmt.Errorf("read the journal: %w", err)
	}
	b, err := readBook(row.Value)
	if err != nil {
		return nil, o, fmt.Errorf("read the journal, %s: %w", r, err)
	}
	return b, o, nil
}

// Rolls lists the last rolls, the newest first.
func (r *Row) Rolls(ctx context.Context) ([]api.Roll, error) {
	b, _, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	return b.list(), nil
}

// Roll returns a roll; 0 is the newest.
func (r *Row) Roll(ctx context.Context, id uint64) (api.Roll, error) {
	b, _, err := r.read(ctx)
	if err != nil {
		return api.Roll{}, err
	}
	x, err := b.roll(id)
	if err != nil {
		return api.Roll{}, err
	}
	if x.Status == api.RollRunning {
		x.Silent = r.silence(b)
	}
	return *x, nil
}

// silence is for how long nobody has heard the holder, in milliseconds. Clocks of other
// machines say nothing of that, so it is as long as this process has looked; nil at its
// first look.
func (r *Row) silence(b *book) *int64 {
	r.seen.Lock()
	defer r.seen.Unlock()
	first := r.seen.since.IsZero()
	if b.Write != r.seen.write {
		r.seen.write, r.seen.since = b.Write, time.Now()
	}
	if first {
		return nil
	}
	ms := time.Since(r.seen.since).Milliseconds()
	return &ms
}

// ChangeRoll does something with a roll. What it returns a quorum has on its disks.
func (r *Row) ChangeRoll(ctx context.Context, a api.RollAction, id uint64, c api.RollChange) (api.Roll, error) {
	for {
		b, o, err := r.read(ctx)
		if err != nil {
			return api.Roll{}, err
		}
		x, err := b.change(time.Now().UTC(), a, id, &c, func() (bool, string) { return r.alive(ctx, b) })
		if err != nil {
			return x, err
		}
		switch err = r.write(ctx, b, o); {
		case api.CodeOf(err) == api.CodePreconditionFailed && ctx.Err() == nil:
			continue // somebody else was faster
		case err != nil:
			return x, fmt.Errorf("write the journal: %w", err)
		}
		if a == api.RollStart || a == api.RollTake {
			r.mine = x.Epoch
		}
		return x, nil
	}
}

// write puts the journal in the place of the version that it was made from.
func (r *Row) write(ctx context.Context, b *book, o client.WriteOptions) error {
	b.Write = rand.Text()
	text, err := b.text()
	for err == nil && len(text) > api.MaxValue && len(b.Rolls) > 1 {
		b.Rolls = b.Rolls[1:] // a row holds no more
		text, err = b.text()
	}
	if err != nil {
		return err
	}
	if _, err = r.Client.Put(ctx, r.Table, r.Key, text, o); err != nil && r.wrote(ctx, b.Write) {
		return nil
	}
	return err
}

// wrote reports whether a write whose answer was an error is there all the same.
func (r *Row) wrote(ctx context.Context, write string) bool {
	now, _, err := r.read(ctx)
	return err == nil && now.Write == write
}

// alive watches whether the holder of the newest roll goes on writing.
func (r *Row) alive(ctx context.Context, was *book) (alive bool, who string) {
	looks, rests := r.looks, r.rests
	if looks == 0 {
		looks = time.Second
	}
	if rests == 0 {
		rests = api.RollSilence
	}
	if last := was.last(); last != nil && last.Epoch == r.mine {
		return false, "this process"
	}
	t := time.NewTicker(looks)
	defer t.Stop()
	for began := time.Now(); time.Since(began) < rests; {
		select {
		case <-t.C:
		case <-ctx.Done():
			return true, "nobody could wait to see whether it does"
		}
		now, _, err := r.read(ctx)
		if err != nil {
			return true, "it is not known: " + err.Error()
		}
		if now.Write != was.Write {
			return true, "the journal goes on"
		}
	}
	return false, fmt.Sprintf("it was silent for %s", rests)
}
