package tui

import (
	"strconv"

	"tidal/node/api"
)

func rollKey(r *api.Roll) string { return strconv.FormatUint(r.ID, 10) }

// rollKey returns the id of the roll at a place in the list, "" if there is none.
func (m *model) rollKey(i int) string {
	if i < 0 || i >= len(m.p.Rolls) {
		return ""
	}
	return rollKey(&m.p.Rolls[i])
}

func rollColumns() []column {
	return []column{
		{title: "ROLL", width: 6},
		{title: "STATUS", width: 9, rank: 0},
		{title: "BEGAN", width: 20, rank: 1},
		{title: "FOR", width: 5, right: true, rank: 2},
		{title: "WHY", width: 40, rank: 3},
		{title: "BY", width: 24, rank: 4},
	}
}

func rollStyle(s api.RollStatus) style {
	switch s {
	case api.RollRunning:
		return moving
	case api.RollPaused:
		return draining
	case api.RollDone:
		return good
	case api.RollAborted:
		return bad
	}
	return plain
}

// rollList is the list of rolls, the newest first, and below it what the newest has
// done with each node.
func (m *model) rollList(w, h int) []string {
	cols := rollColumns()
	chosen, widths := choose(cols, w, 6)
	out := []string{m.th.draw(m.th.heading(cols, chosen, widths, ""), w, false)}
	switch {
	case m.p.RollsAt.IsZero():
		return append(out, m.empty(w, "not known yet"))
	case len(m.p.Rolls) == 0:
		return append(out, m.empty(w, "nothing has been rolled yet: tidal roll"))
	}
	nodes := m.rollNodes()
	room := max(h-1-len(nodes), min(h-1, 3))
	from := max(0, min(m.rolls.top, m.rolls.index), m.rolls.index-room+1)
	for i := from; i < min(len(m.p.Rolls), from+room); i++ {
		r := &m.p.Rolls[i]
		last := r.Changed
		if r.Status == api.RollRunning {
			last = m.p.Now
		}
		cells := []cell{
			{rollKey(r), strong},
			{clean(string(r.Status)), rollStyle(r.Status)},
			{r.Began.UTC().Format("2006-01-02 15:04:05"), plain},
			{span(last.Sub(r.Began)), plain},
			{orNone(clean(r.Why)), plain},
			{clean(r.By), faint},
		}
		out = append(out, m.th.draw(m.th.row(cols, cells, chosen, widths, i == m.rolls.index), w, false))
	}
	for _, l := range nodes {
		out = append(out, m.th.draw(l, w, false))
	}
	return out
}

// rollKeyText says what R does now.
func (m *model) rollKeyText() string {
	switch r := m.p.Roll; {
	case mayBeTaken(r):
		return "R resume"
	case r != nil && r.Status == api.RollRunning:
		return "R pause"
	}
	return "R start a roll"
}

// rollNodes are the nodes of the newest roll, each with the state it came to.
func (m *model) rollNodes() []line {
	r := m.p.Roll
	if r == nil || len(r.Nodes) == 0 {
		return nil
	}
	out := []line{{}, {}}
	out[1].add(faint, "  ROLL %d, NODE BY NODE", r.ID)
	if age := m.p.Now.Sub(m.p.RollsAt); age > 2*rollsEvery+oldData {
		out[1].add(unsure, "  as it was %s ago", span(age))
	}
	if m.o.Roller != nil {
		if id, doing := m.o.Roller.Running(); id == r.ID {
			out[1].add(accent, "  from here: %s", clean(doing))
		}
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		var l line
		l.add(strong, "  %s", fit(clean(n.Node), 12, false, m.th.more()))
		st := moving
		if n.State == "done" || n.State == "skipped" {
			st = good
		}
		l.add(st, "  %s", fit(clean(n.State), 12, false, m.th.more()))
		if k := len(n.Steps); k > 0 {
			l.add(faint, "  for %s", fit(span(m.p.Now.Sub(n.Steps[k-1].At)), 5, false, ""))
		}
		if n.Note != "" {
			l.add(plain, "  %s", clean(n.Note))
		}
		out = append(out, l)
	}
	return out
}
