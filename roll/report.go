package roll

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
)

// sampleEvery is how often the nodes' counts are read during a roll. What a node
// counts between the last reading and its end it leaves to its next run.
const sampleEvery = time.Second

// Event is one thing that happens during a roll.
type Event struct {
	Event string    `json:"event"` // state, wait, note
	Roll  uint64    `json:"roll"`
	Time  time.Time `json:"time"`
	Node  string    `json:"node,omitempty"`
	State State     `json:"state,omitempty"`
	Note  string    `json:"note,omitempty"`
}

// Report is what clients met during a roll, as the nodes counted it.
type Report struct {
	Event     string              `json:"event"` // report
	Roll      uint64              `json:"roll"`
	Status    string              `json:"status"`
	Why       string              `json:"why,omitempty"`
	Requests  uint64              `json:"requests"`
	Refused   uint64              `json:"refused"`
	ByReason  map[api.Code]uint64 `json:"refused_by,omitempty"`
	LongestMS float64             `json:"longest_ms"` // of the nodes' ones
	P99Before float64             `json:"p99_before_ms"`
	P99During float64             `json:"p99_during_ms"`
	Nodes     []NodeReport        `json:"nodes"`
	Kind      string              `json:"kind,omitempty"`   // of the cluster; "": tidal
	Canary    *CanaryReport       `json:"canary,omitempty"` // its failures count as refused
	Epoch     uint64              `json:"epoch,omitempty"`  // of who wrote it; it holds the reports of earlier ones
}

// NodeReport is what clients met at one node.
type NodeReport struct {
	Node      string              `json:"node"`
	Requests  uint64              `json:"requests"`
	Refused   uint64              `json:"refused"`
	ByReason  map[api.Code]uint64 `json:"refused_by,omitempty"`
	LongestMS float64             `json:"longest_ms"`        // of a request, or of the time that the port was shut
	ShutMS    int64               `json:"shut_ms,omitempty"` // who connected then may have waited so long
	P99Before float64             `json:"p99_before_ms"`
	P99During float64             `json:"p99_during_ms"`
	Unknown   string              `json:"unknown,omitempty"` // what the figures leave out
}

// counter adds up what the nodes count while a roll goes on.
type counter struct {
	cluster Cluster
	nodes   []string

	mu struct {
		sync.Mutex
		by map[string]*counted
	}
}

// unheard is what the figures of a node leave out that no reading is of.
const unheard = "everything: it never answered"

// counted is what is known of one node's counts.
type counted struct {
	seen    bool
	silent  bool              // it did not answer when it was asked last
	at      time.Time         // when it was asked last and answered; before that, when it was to be counted from
	missed  bool              // it did not answer when it was to be counted from
	last    api.RequestReport // the newest reading
	before  api.RequestCounts
	during  api.RequestCounts
	shut    int64
	unknown string
}

// begin reads what the nodes counted before the roll.
func (c *counter) begin(ctx context.Context) {
	c.mu.Lock()
	c.mu.by = map[string]*counted{}
	for _, id := range c.nodes {
		c.mu.by[id] = &counted{at: time.Now()}
	}
	c.mu.Unlock()
	c.sample(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.mu.by {
		x.missed = !x.seen
	}
}

// run reads the counts until ctx ends.
func (c *counter) run(ctx context.Context) {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.sample(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// sample reads the counts of all nodes that answer.
func (c *counter) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var g errgroup.Group
	for _, id := range c.nodes {
		g.Go(func() error {
			asked := time.Now()
			now, err := c.cluster.Requests(ctx, id)
			c.mu.Lock()
			defer c.mu.Unlock()
			if x := c.mu.by[id]; err == nil {
				x.read(asked, &now)
			} else {
				x.silent = true
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no errors
}

// read adds what a node answered that was asked then.
func (x *counted) read(asked time.Time, now *api.RequestReport) {
	if x.missed && !x.seen {
		x.unknown = fmt.Sprintf("what it counted from %s to %s: it did not answer", stamp(x.at), stamp(time.Now()))
	}
	x.take(now)
	x.silent, x.at = false, asked
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// take adds a reading.
func (x *counted) take(now *api.RequestReport) {
	if now.Incarnation == x.last.Incarnation && now.Total.Answered < x.last.Total.Answered {
		return // an older reading, late
	}
	switch {
	case !x.seen:
		if x.seen = true; !x.missed { // else the last minute is of the roll
			x.before = now.Recent
		}
	case now.Incarnation == x.last.Incarnation:
		d := now.Total.Since(&x.last.Total)
		x.during.Add(&d)
	case now.Incarnation.Compare(x.last.Incarnation) < 0:
		return
	default:
		if b := now.Before; b != nil && b.Incarnation == x.last.Incarnation {
			d := b.Total.Since(&x.last.Total)
			x.during.Add(&d)
			x.shut = max(x.shut, b.ShutMillis)
		} else {
			x.unknown = joined(x.unknown, fmt.Sprintf("what %s counted last: it did not end in order", x.last.Incarnation))
		}
		x.during.Add(&now.Total)
	}
	x.last = *now
}

// leftOut says what the counts leave out; "": nothing.
func (x *counted) leftOut() string {
	switch {
	case !x.seen:
		return unheard
	case x.silent:
		return joined(x.unknown, fmt.Sprintf("what %s counted since %s: it does not answer", x.last.Incarnation, stamp(x.at)))
	}
	return x.unknown
}

// maxUnknown bounds what is said of one node's counts, in bytes: a report has a limit.
const maxUnknown = 512

// joined adds to what the figures leave out.
func joined(was, more string) string {
	switch {
	case was == "" || more == "":
		return was + more
	case strings.Contains(was, more):
		return was
	}
	return clip(was+"; "+more, maxUnknown)
}

func (c *counter) refused() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n uint64
	for _, x := range c.mu.by {
		n += x.during.RefusedSum()
	}
	return n
}

func millis(micros int64) float64 { return float64(micros/10) / 100 }

// report says what was counted so far.
func (c *counter) report(roll uint64, p *Plan) *Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &Report{Event: "report", Roll: roll, Nodes: []NodeReport{}}
	var before, during api.RequestCounts
	for _, id := range slices.Sorted(slices.Values(p.Expected())) {
		x := c.mu.by[id]
		n := NodeReport{
			Node: id, Requests: x.during.Answered, Refused: x.during.RefusedSum(), ByReason: x.during.Refused,
			LongestMS: max(millis(x.during.LongestMicros), float64(x.shut)), ShutMS: x.shut, Unknown: x.leftOut(),
			P99Before: millis(x.before.Quantile(.99)), P99During: millis(x.during.Quantile(.99)),
		}
		out.Nodes = append(out.Nodes, n)
		out.LongestMS = max(out.LongestMS, n.LongestMS)
		before.Add(&x.before)
		during.Add(&x.during)
	}
	out.Requests, out.Refused, out.ByReason = during.Answered, during.RefusedSum(), during.Refused
	out.P99Before, out.P99During = millis(before.Quantile(.99)), millis(during.Quantile(.99))
	return out
}
