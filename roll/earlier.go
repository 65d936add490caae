package roll

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"tidal/node/api"
)

// earlier is what is left of the runs of a roll that came before one: of those that
// were paused the report of the last, which holds those before it, and nothing of one
// whose operator died.
type earlier struct {
	report *Report // nil: there is none
	gap    string  // what of it nobody knows; "": nothing
	epoch  uint64  // of the run that comes now
}

// earlierOf returns what came before the epoch that a roll is at.
func earlierOf(r *api.Roll) earlier {
	e := earlier{epoch: r.Epoch}
	var err error
	switch e.report, err = readReport(r); {
	case err != nil:
		e.gap = fmt.Sprintf("what it counted before epoch %d of the roll: %v", r.Epoch, err)
	case e.report == nil && len(r.Nodes) > 0:
		e.gap = fmt.Sprintf("what it counted before epoch %d of the roll: who held it until then left no report", r.Epoch)
	case e.report != nil && e.report.Epoch+1 < r.Epoch:
		e.gap = fmt.Sprintf("what it counted from the last pause to epoch %d of the roll: who held it then left no report", r.Epoch)
	}
	return e
}

// readReport reads the report that a roll's journal has; nil: it has none.
func readReport(r *api.Roll) (*Report, error) {
	if len(r.Report) == 0 {
		return nil, nil //nolint:nilnil // none is no error
	}
	out := &Report{}
	if err := json.Unmarshal(r.Report, out); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	return out, nil
}

// ReportOf returns the report of a roll, as its journal has it; nil: there is none. A
// roll that runs has none: what the journal has then is of its last pause. One that was
// ended since by somebody who counts nothing has the figures of that pause.
func ReportOf(r *api.Roll) (*Report, error) {
	if r.Status == api.RollRunning {
		return nil, nil //nolint:nilnil // none is no error
	}
	out, err := readReport(r)
	if out == nil || out.Status == string(r.Status) {
		return out, err
	}
	e := earlierOf(r)
	out.Status, out.Why, out.Epoch = string(r.Status), r.Why, r.Epoch
	for i := range out.Nodes {
		out.Nodes[i].Unknown = joined(out.Nodes[i].Unknown, e.gap)
	}
	if out.Canary != nil {
		out.Canary.Unknown = joined(out.Canary.Unknown, e.gap)
	}
	return out, nil
}

// addTo adds what came before to the report of a run.
func (e *earlier) addTo(r *Report) {
	if e.report == nil && e.gap == "" {
		return
	}
	was := &Report{}
	if e.report != nil {
		was = e.report
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		old := NodeReport{}
		if at := slices.IndexFunc(was.Nodes, func(o NodeReport) bool { return o.Node == n.Node }); at >= 0 {
			old = was.Nodes[at]
		}
		n.add(&old)
		n.Unknown = e.leftOut(old.Unknown, n.Unknown)
	}
	r.Requests += was.Requests
	r.Refused += was.Refused
	r.ByReason = sums(was.ByReason, r.ByReason)
	r.LongestMS, r.P99During = max(r.LongestMS, was.LongestMS), max(r.P99During, was.P99During)
	r.P99Before = was.P99Before // the last minute before this run is of the roll, or of its pause
	e.addCanary(r, was.Canary)
}

// leftOut says what the figures of a node leave out, of before and of now.
func (e *earlier) leftOut(was, now string) string {
	switch {
	case was == unheard && now == unheard:
		return unheard
	case was == unheard:
		was = fmt.Sprintf("everything before epoch %d of the roll: it did not answer", e.epoch)
	case now == unheard:
		now = fmt.Sprintf("everything since epoch %d of the roll: it did not answer", e.epoch)
	}
	return joined(joined(was, e.gap), now)
}

func (e *earlier) addCanary(r *Report, was *CanaryReport) {
	switch {
	case r.Canary == nil:
		r.Canary = was
	case was != nil:
		r.Canary.Before.add(&was.Before)
		r.Canary.During.add(&was.During)
		r.Canary.After.add(&was.After)
		r.Canary.Unknown = was.Unknown
	}
	if r.Canary != nil {
		r.Canary.Unknown = joined(r.Canary.Unknown, e.gap)
	}
}

// add adds what an earlier run counted at the same node. Of p99 no more is known than
// that it is not above the larger one.
func (n *NodeReport) add(was *NodeReport) {
	n.Requests += was.Requests
	n.Refused += was.Refused
	n.ByReason = sums(was.ByReason, n.ByReason)
	n.LongestMS, n.ShutMS = max(n.LongestMS, was.LongestMS), max(n.ShutMS, was.ShutMS)
	n.P99Before, n.P99During = was.P99Before, max(n.P99During, was.P99During)
}

// sums adds counts by reason, and changes neither.
func sums(a, b map[api.Code]uint64) map[api.Code]uint64 {
	out := maps.Clone(a)
	for code, n := range b {
		if out == nil {
			out = map[api.Code]uint64{}
		}
		out[code] += n
	}
	return out
}

// add adds what an earlier run met in the same phase.
func (p *CanaryPhase) add(was *CanaryPhase) {
	p.Attempts += was.Attempts
	p.Failed += was.Failed
	p.GapMS, p.SlowestMS = max(p.GapMS, was.GapMS), max(p.SlowestMS, was.SlowestMS)
	for _, f := range was.Failures {
		p.failed(f.How, f.Count)
	}
	p.Failures = mostFirst(p.Failures)
}

// failed counts failures; of those that are of ever other kinds only that they were.
func (p *CanaryPhase) failed(how string, count uint64) {
	find := func() int { return slices.IndexFunc(p.Failures, func(f CanaryFailure) bool { return f.How == how }) }
	i := find()
	if i < 0 && len(p.Failures) >= canaryTexts {
		how = canaryOther
		i = find()
	}
	if i < 0 {
		p.Failures, i = append(p.Failures, CanaryFailure{How: how}), len(p.Failures)
	}
	p.Failures[i].Count += count
}

func mostFirst(all []CanaryFailure) []CanaryFailure {
	return slices.SortedFunc(slices.Values(all), func(a, b CanaryFailure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.How, b.How))
	})
}
