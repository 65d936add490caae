package tui

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidal/node/api"
)

// pane is what is chosen, beside the list.
func (m *model) pane() []line {
	switch m.view {
	case viewNodes:
		if r := m.chosenNode(); r != nil {
			return m.nodeLines(r, detailWidth)
		}
	case viewTables:
		if t := m.chosenTable(); t != nil {
			return m.tableLines(t, detailWidth, 12)
		}
	case viewEvents, viewRolls, viewNode, viewTable:
	}
	return []line{}
}

// fact is a line that names something.
func fact(name string, st style, format string, args ...any) line {
	var l line
	l.add(faint, "  %s", fit(name, 13, false, ""))
	l.add(st, format, args...)
	return l
}

func heading(format string, args ...any) line {
	var l line
	l.add(title, "  "+format, args...)
	return l
}

// nodeDetail is the screen of one node.
func (m *model) nodeDetail(w int) []line {
	r := m.chosenNode()
	if r == nil {
		return []line{{}, fact("", faint, "node %s is no member any more; esc goes back", m.node)}
	}
	return m.nodeLines(r, w)
}

func (m *model) nodeLines(r *nodeRow, w int) []line {
	out := []line{heading("node %s", r.id)}
	state := fact("state", r.style, "%s %s", r.symbol, stateText(r))
	out = append(out, state)
	if r.why != "" {
		for _, text := range wrap(r.why, w-17) {
			out = append(out, fact("", plain, "%s", text))
		}
	}
	out = append(out,
		fact("incarnation", plain, "%s", orNone(r.incarnation)),
		fact("lease", plain, "%s", m.leaseText(r)),
		fact("address", plain, "%s", orNone(r.address)),
		fact("disk id", plain, "%s", r.member.Disk),
		fact("zone", plain, "%s", orNone(r.zone)),
		fact("version", plain, "%s", orNone(r.version)),
		fact("metadata", plain, "%s", r.meta),
		fact("tables", plain, "owns %s, holds %s", amount(r.owned), amount(r.held)),
	)
	out = append(out, line{}, heading("what it says of itself"))
	return append(out, m.localLines(r, w)...)
}

func (m *model) leaseText(r *nodeRow) string {
	switch {
	case r.member.Lease == nil:
		return "none"
	case math.IsNaN(r.lease):
		return "held; how long, only the leader of the metadata knows"
	}
	full := 3.5
	n := int(math.Round(min(r.lease/full, 1) * 10))
	return strings.Repeat(m.th.glyph("█", "#"), n) + strings.Repeat(m.th.glyph("░", "."), 10-n) +
		fmt.Sprintf(" %.1f s left unless renewed", r.lease)
}

// localLines is what a node said of itself, with its age if that is old.
func (m *model) localLines(r *nodeRow, w int) []line {
	if r.local.At.IsZero() {
		out := []line{fact("", faint, "nothing yet")}
		for _, text := range wrap(clean(r.local.Err), w-17) {
			out = append(out, fact("", faint, "%s", text))
		}
		return out
	}
	s, st := &r.local.Status, plain
	var out []line
	if !r.answered {
		st = faint
		out = append(out, fact("age", unsure, "%s old, as %s", span(m.p.Now.Sub(r.local.At)), clean(s.Incarnation.String())))
	}
	out = append(out, fact("phase", st, "%s", clean(s.Phase)), fact("up", st, "%s", span(m.p.Now.Sub(s.Started))))
	ready := "yes"
	if !s.Ready {
		ready = "no"
	}
	out = append(out, fact("ready", st, "%s", ready))
	for i, x := range s.Reasons {
		if i == 5 {
			out = append(out, fact("", faint, "and %d more reasons", len(s.Reasons)-i))
			break
		}
		for _, text := range wrap(x.Code+": "+firstReason([]api.Reason{x}, ""), w-17) {
			out = append(out, fact("", joining, "%s", clean(text)))
		}
	}
	if s.Claim != nil {
		out = append(out, fact("drain", draining, "claimed by %s, epoch %d, ends in %s", clean(s.Claim.By), s.Claim.Epoch, clean(s.Claim.EndsIn)))
	}
	if s.Space != nil {
		out = append(out, fact("disk", st, "%s free of %s", bytesText(s.Space.Available), bytesText(s.Space.Total)))
	}
	if s.Certificate != nil {
		out = append(out, fact("certificate", st, "expires in %s, %s", span(s.Certificate.Sub(m.p.Now)), s.Certificate.UTC().Format("2006-01-02")))
	}
	q := &s.Requests
	out = append(out,
		fact("requests", st, "%s/s, p99 %s", amount(r.local.Rate), secondsText(r.local.P99)),
		fact("since start", st, "%s answered, %s refused, max %s", amount(float64(q.Answered)), amount(float64(q.RefusedSum())), secondsText(float64(q.LongestMicros)/1e6)))
	return out
}

func secondsText(n float64) string {
	if math.IsNaN(n) {
		return none
	}
	return span(time.Duration(n * float64(time.Second)))
}

// wrap cuts text into lines of at most w cells, between words where there are any.
func wrap(text string, w int) []string {
	w = max(w, 10)
	var out []string
	for word := range strings.FieldsSeq(text) {
		if n := len(out) - 1; n >= 0 && width(out[n])+1+width(word) <= w {
			out[n] += " " + word
			continue
		}
		for width(word) > w {
			head := cut(word, w)
			if head == "" {
				break
			}
			out, word = append(out, head), word[len(head):]
		}
		out = append(out, word)
	}
	return out
}

// tableDetail is the screen of one table.
func (m *model) tableDetail(w, h int) []line {
	t := m.chosenTable()
	if t == nil {
		return []line{{}, fact("", faint, "table %s is not there any more, or not here yet; esc goes back", m.table)}
	}
	return m.tableLines(t, w, h)
}

func (m *model) tableLines(t *api.Table, w, h int) []line {
	symbol, st := m.tableLook(t.State)
	word := string(t.State)
	if m.p.old() {
		symbol, st, word = "?", unsure, "stale, was "+word
	}
	frontier := none
	if t.Frontier != nil {
		frontier = strconv.FormatUint(*t.Frontier, 10)
	}
	out := []line{
		heading("table %s", clean(t.Name)),
		fact("state", st, "%s %s", symbol, word),
		fact("owner", plain, "%s in term %d", orNone(clean(t.Owner)), t.Term),
		fact("place", plain, "%s", orNone(clean(t.Place))),
		fact("id", plain, "%s", t.ID),
		fact("frontier", plain, "%s", frontier),
		{},
		m.replicaHead(),
	}
	for i := range t.Replicas {
		out = append(out, m.replicaLine(t, &t.Replicas[i]))
	}
	out = append(out, line{})
	out = append(out, m.tableCharts(t, w, h-len(out)-6)...)
	return append(out, m.tableEvents(t)...)
}

func (m *model) replicaHead() line {
	var l line
	l.add(faint, "  %s  %s  %s  %s", fit("REPLICA ON", 12, false, ""), fit("LAG", 6, true, ""), fit("IN TIME", 7, true, ""), "WHAT")
	return l
}

// replicaLine is one replica: its lag in entries and, at the rate of the table's
// writes, in time.
func (m *model) replicaLine(t *api.Table, r *api.Replica) line {
	var l line
	st := plain
	what := "follows"
	switch {
	case !r.Live:
		st, what = bad, m.th.glyph("✗", "x")+" its node is down"
	case r.Leaving:
		st, what = moving, "goes once the table can do without it"
	case !r.Voter:
		st, what = joining, "+ catches up"
	case r.Node == t.Owner:
		st, what = good, m.th.glyph("●", "*")+" owns"
	}
	lag, late := none, none
	if r.Lag != nil {
		lag = amount(float64(*r.Lag))
		switch rate := pointed(t.Writes); {
		case *r.Lag == 0:
			late = "0"
		case rate > 0:
			late = "~" + secondsText(float64(*r.Lag)/rate)
		}
	}
	l.add(strong, "  %s", fit(clean(r.Node), 12, false, m.th.more()))
	l.add(plain, "  %s  %s  ", fit(lag, 6, true, ""), fit(late, 7, true, ""))
	l.add(st, "%s", what)
	return l
}

// From so many cells on, and so many lines, there is room for two charts.
const (
	besideWidth = 100
	belowHeight = 12
)

// tableCharts are the charts of a table's writes and of how long they take, in about so
// many lines: beside each other, one below the other, or the second one as a number.
func (m *model) tableCharts(t *api.Table, w, room int) []line {
	series := m.p.Tables[t.ID]
	writes := chartOf{head: "WRITES", now: amount(pointed(t.Writes)) + "/s", series: series.Writes, text: amount, scale: &m.scales[0]}
	late := chartOf{head: "P99 OF WRITES", now: secondsText(pointed(t.P99)), series: series.P99, text: secondsText, scale: &m.scales[1]}
	switch {
	case w >= besideWidth:
		h := max(3, min(8, room))
		return beside(m.chart(writes, w/2-1, h), m.chart(late, w/2-1, h), w/2)
	case room >= belowHeight:
		h := min(8, room/2-1)
		return append(append(m.chart(writes, w, h), line{}), m.chart(late, w, h)...)
	}
	return append(m.chart(writes, w, max(3, min(8, room))), m.chart(late, w, 0)...)
}

// beside puts lines beside each other; the right ones begin at a cell.
func beside(left, right []line, at int) []line {
	out := make([]line, max(len(left), len(right)))
	for i := range out {
		if i < len(left) {
			out[i] = left[i]
		}
		if i < len(right) {
			out[i].add(plain, "%s", strings.Repeat(" ", max(0, at-out[i].width())))
			out[i].parts = append(out[i].parts, right[i].parts...)
		}
	}
	return out
}

// chartOf is what a chart shows.
type chartOf struct {
	head, now string
	series    []float64
	text      func(float64) string // writes a number
	scale     *float64             // what it is fixed at; 0: not yet
}

// chart draws numbers over time, from 0 to the highest of them, or, with a fixed scale,
// to what was the highest when it was fixed.
func (m *model) chart(c chartOf, w, h int) []line {
	top := 0.0
	for _, v := range c.series {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			top = max(top, v)
		}
	}
	how := "up to"
	if m.fixed {
		how = "fixed at"
		if *c.scale == 0 {
			*c.scale = top
		}
		top = *c.scale
	}
	var head line
	head.add(faint, "  %s ", c.head)
	head.add(plain, "%s", c.now)
	if top > 0 {
		head.add(faint, "  %s %s", how, c.text(top))
	}
	out := []line{head}
	if w < tinyWidth || h < 1 || top == 0 {
		return out
	}
	for _, row := range chart(c.series, min(w-4, 120), h, top, m.th.columns()) {
		var l line
		l.add(good, "  %s", row)
		out = append(out, l)
	}
	return out
}

// tableEvents are the newest events that name the table.
func (m *model) tableEvents(t *api.Table) []line {
	out := []line{{}, {}}
	out[1].add(faint, "  LAST EVENTS")
	for i := len(m.p.Events) - 1; i >= 0 && len(out) < 12; i-- {
		e := &m.p.Events[i]
		if slices.Contains(e.Tables, t.Name) {
			var l line
			l.add(faint, "  %s  ", e.Time.UTC().Format("15:04:05"))
			l.add(eventStyle(e), "%s", clean(e.String()))
			out = append(out, l)
		}
	}
	if len(out) == 2 {
		return nil
	}
	return out
}
