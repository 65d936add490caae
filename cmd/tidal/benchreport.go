package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/client"
)

// fine is how many buckets a histogram has for each doubling of the time.
const (
	fineBits = 6
	fine     = 1 << fineBits
)

// histogram counts times, each within 1.6 %.
type histogram struct {
	buckets [(64 - fineBits) * fine]uint64
	count   uint64
	most    time.Duration
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucketOf(uint64(d))]++
	h.count++
	h.most = max(h.most, d)
}

// bucketOf is the number itself up to 2*fine, and then its highest bits.
func bucketOf(n uint64) int {
	shift := max(bits.Len64(n)-fineBits-1, 0)
	return shift*fine + int(n>>shift)
}

// quantile is the time that so large a part of all did not take longer than.
func (h *histogram) quantile(q float64) time.Duration {
	rank, seen := uint64(math.Ceil(q*float64(h.count))), uint64(0)
	for i, n := range h.buckets {
		if seen += n; n > 0 && seen >= rank {
			return min(bucketEnd(i), h.most)
		}
	}
	return h.most
}

// bucketEnd is the longest time of a bucket.
func bucketEnd(i int) time.Duration {
	shift := max(i/fine-1, 0)
	return time.Duration((i-shift*fine+1)<<shift - 1)
}

// benchReason is why requests were not done.
type benchReason struct {
	Count uint64 `json:"count"`
	First string `json:"first"` // what the first was told
}

// series is what came of the requests of a kind.
type series struct {
	sync.Mutex
	times   histogram
	failed  uint64
	reasons map[string]*benchReason
}

func newSeries() *series { return &series{reasons: map[string]*benchReason{}} }

// note counts a request that took so long. A row that is not there is an answer.
func (s *series) note(took time.Duration, err error) {
	s.Lock()
	defer s.Unlock()
	if err == nil || api.CodeOf(err) == api.CodeRowNotFound {
		s.times.add(took)
		return
	}
	s.failed++
	name := reasonOf(err)
	if s.reasons[name] == nil {
		s.reasons[name] = &benchReason{First: err.Error()}
	}
	s.reasons[name].Count++
}

// reasonOf is the code of an error, or a word like one.
func reasonOf(err error) string {
	switch code := api.CodeOf(err); {
	case errors.Is(err, client.ErrUnreachable):
		return "unreachable"
	case code != "":
		return string(code)
	}
	return "no-answer"
}

// glance is a series as it goes on.
type glance struct{ done, failed uint64 }

func (s *series) glance() glance {
	s.Lock()
	defer s.Unlock()
	return glance{s.times.count, s.failed}
}

// benchKind is the result for the requests of a kind.
type benchKind struct {
	Requests  uint64                  `json:"requests"` // that were done
	PerSecond float64                 `json:"per_second"`
	P50       float64                 `json:"p50_ms"`
	P99       float64                 `json:"p99_ms"`
	P999      float64                 `json:"p999_ms"`
	Max       float64                 `json:"max_ms"`
	NotDone   uint64                  `json:"not_done"`
	Reasons   map[string]*benchReason `json:"reasons,omitempty"` // by code
}

// benchOut is the result of a run.
type benchOut struct {
	Cluster   string     `json:"cluster,omitempty"`
	Endpoints []string   `json:"endpoints"`
	Plan      benchPlan  `json:"plan"`
	Seconds   float64    `json:"seconds"`
	Write     *benchKind `json:"write,omitempty"`
	Read      *benchKind `json:"read,omitempty"`
	Unsent    uint64     `json:"unsent,omitempty"` // of an open loop: due, and no client was free
}

// finish fills in what was measured in so long a time.
func (o *benchOut) finish(b *bench, took time.Duration) {
	o.Seconds = took.Seconds()
	o.Write, o.Read = b.write.result(took), b.read.result(took)
	w, r := b.write.glance(), b.read.glance()
	due := b.plan.Rate * b.plan.length.Seconds()
	if sent := w.done + w.failed + r.done + r.failed; took >= b.plan.length && float64(sent) < due-1 {
		o.Unsent = uint64(due) - sent
	}
}

func (s *series) result(took time.Duration) *benchKind {
	s.Lock()
	defer s.Unlock()
	if s.times.count+s.failed == 0 {
		return nil
	}
	ms := func(q float64) float64 { return math.Round(float64(s.times.quantile(q).Microseconds())) / 1000 }
	return &benchKind{
		Requests: s.times.count, PerSecond: math.Round(float64(s.times.count)/took.Seconds()*10) / 10,
		P50: ms(.5), P99: ms(.99), P999: ms(.999), Max: ms(1),
		NotDone: s.failed, Reasons: s.reasons,
	}
}

// writeBench writes the result as tables.
func (a *app) writeBench(o *benchOut) error {
	var rows, reasons [][]string
	for _, k := range []struct {
		name string
		*benchKind
	}{{"write", o.Write}, {"read", o.Read}} {
		if k.benchKind == nil {
			continue
		}
		row := []string{k.name, strconv.FormatUint(k.Requests, 10), fmt.Sprintf("%.0f", k.PerSecond)}
		for _, ms := range []float64{k.P50, k.P99, k.P999, k.Max} {
			row = append(row, fmt.Sprintf("%.2f", ms))
		}
		rows = append(rows, append(row, strconv.FormatUint(k.NotDone, 10)))
		for _, name := range slices.Sorted(maps.Keys(k.Reasons)) {
			r := k.Reasons[name]
			reasons = append(reasons, []string{k.name, name, strconv.FormatUint(r.Count, 10), r.First})
		}
	}
	err := a.writeTable([]string{"KIND", "DONE", "PER SECOND", "P50 MS", "P99 MS", "P99.9 MS", "MAX MS", "NOT DONE"}, rows)
	if err != nil || len(reasons) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(a.stdout); err != nil {
		return err
	}
	return a.writeTable([]string{"KIND", "REASON", "COUNT", "FIRST"}, reasons)
}
