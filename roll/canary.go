package roll

import (
	"context"
	"sync"
	"time"
)

// The shape of a canary.
const (
	canaryAtOnce = 4   // attempts in flight: one that hangs does not hide what the others meet
	canaryTexts  = 10  // different failures that are remembered
	canaryLast   = 200 // bytes of a failure's last line
	canaryOther  = "other"
)

// Canary asks a cluster for something again and again, as a client would, and notes
// what it meets: for clusters that count nothing themselves.
type Canary struct {
	// Attempt asks once, and returns "" or how that failed, in few words. It counts
	// from 1.
	Attempt func(ctx context.Context, n uint64) string
	Every   time.Duration // between two attempts
	Around  time.Duration // how long it watches before the first node, and after the last

	mu struct {
		sync.Mutex
		phase   int
		began   time.Time // of the phase
		success time.Time // the last one, of any phase; zero: none yet
		phases  [3]CanaryPhase
	}
}

// CanaryReport is what a canary met.
type CanaryReport struct {
	EveryMS int64       `json:"every_ms"`
	Before  CanaryPhase `json:"before"`
	During  CanaryPhase `json:"during"`
	After   CanaryPhase `json:"after"`
	Unknown string      `json:"unknown,omitempty"` // what the figures leave out
}

// CanaryPhase is what a canary met in one phase of a roll.
type CanaryPhase struct {
	Attempts  uint64          `json:"attempts"`
	Failed    uint64          `json:"failed"`
	GapMS     int64           `json:"longest_gap_ms"` // between two that succeeded
	SlowestMS int64           `json:"slowest_ms"`     // of those that succeeded
	Failures  []CanaryFailure `json:"failures,omitempty"`
}

// CanaryFailure is one way in which attempts failed.
type CanaryFailure struct {
	How   string `json:"how"` // exit code and last line
	Count uint64 `json:"count"`
}

// The phases.
const (
	canaryBefore = iota
	canaryDuring
	canaryAfter
)

// run asks until ctx ends, and waits for what is under way.
func (c *Canary) run(ctx context.Context) {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	var attempts sync.WaitGroup
	defer attempts.Wait()
	free := make(chan struct{}, canaryAtOnce)
	for n := uint64(1); ; n++ {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return
		}
		attempts.Go(func() {
			defer func() { <-free }()
			began := time.Now()
			how := c.Attempt(ctx, n)
			if ctx.Err() == nil { // else it was cut off by us
				c.met(began, how)
			}
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// enter begins a phase. What is in flight counts for the phase in which it ends.
func (c *Canary) enter(phase int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gapLocked(time.Now())
	c.mu.phase, c.mu.began = phase, time.Now()
}

// gapLocked notes how long nothing has succeeded, in the phase that is now.
func (c *Canary) gapLocked(now time.Time) {
	since := c.mu.success
	if since.IsZero() {
		since = c.mu.began
	}
	if since.IsZero() {
		return
	}
	p := &c.mu.phases[c.mu.phase]
	p.GapMS = max(p.GapMS, now.Sub(since).Milliseconds())
}

// met notes an attempt that ended.
func (c *Canary) met(began time.Time, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	p := &c.mu.phases[c.mu.phase]
	p.Attempts++
	if how == "" {
		c.gapLocked(now)
		c.mu.success = now
		p.SlowestMS = max(p.SlowestMS, now.Sub(began).Milliseconds())
		return
	}
	p.Failed++
	p.failed(clip(how, canaryLast), 1)
}

// failed returns how many attempts failed since the roll began.
func (c *Canary) failed() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.phases[canaryDuring].Failed + c.mu.phases[canaryAfter].Failed
}

// report says what it met so far.
func (c *Canary) report() *CanaryReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gapLocked(time.Now())
	var out [3]CanaryPhase
	for i, p := range c.mu.phases {
		p.Failures = mostFirst(p.Failures)
		out[i] = p
	}
	return &CanaryReport{EveryMS: c.Every.Milliseconds(), Before: out[canaryBefore], During: out[canaryDuring], After: out[canaryAfter]}
}
