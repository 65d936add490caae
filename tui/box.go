package tui

import (
	"slices"
	"strings"
)

// overlay puts a box over the middle of the body.
func (m *model) overlay(body []string, box []line, h int) []string {
	if h <= 0 {
		return nil
	}
	body = slices.Clone(body)
	for len(body) < h {
		body = append(body, "")
	}
	if len(box) > h { // what is asked and how to answer stay
		box = append(slices.Clone(box[:max(h-1, 0)]), box[len(box)-1])
	}
	w := 0
	for _, l := range box {
		w = max(w, l.width())
	}
	w = min(w, m.w)
	left := strings.Repeat(" ", (m.w-w)/2)
	at := (h - len(box)) / 2
	for i, l := range box {
		body[at+i] = left + m.th.draw(l, w, true)
	}
	return body
}

// frame draws a border round lines.
func (m *model) frame(head string, lines []line, st style) []line {
	w := width(head) + 2
	for _, l := range lines {
		w = max(w, l.width())
	}
	w = max(1, min(w, m.w-4))
	edge, side := m.th.glyph("─", "-"), m.th.glyph("│", "|")
	corners := []string{"┌", "┐", "└", "┘"}
	if m.th.ascii {
		corners = []string{"+", "+", "+", "+"}
	}
	head = cut(head, w-2)
	var top, bottom line
	top.add(st, "%s", corners[0]+edge)
	top.add(strong, "%s", " "+head+" ")
	top.add(st, "%s", strings.Repeat(edge, max(0, w-1-width(head)))+corners[1])
	bottom.add(st, "%s", corners[2]+strings.Repeat(edge, w+2)+corners[3])
	out := []line{top}
	for _, l := range lines {
		x := line{}
		x.add(st, "%s", side+" ")
		left := w
		for _, p := range l.parts {
			text := cut(p.text, left)
			left -= width(text)
			x.parts = append(x.parts, part{p.style, text})
		}
		x.add(plain, "%s", strings.Repeat(" ", max(left, 0)))
		x.add(st, "%s", " "+side)
		out = append(out, x)
	}
	return append(out, bottom)
}

func helpLines() []string {
	return []string{
		"1 2 3 4, tab     nodes, tables, events, rolls",
		"j k, arrows      move;  g G first and last;  ctrl-d ctrl-u half a page",
		"enter            open: a node, its tables, a table;  esc goes back",
		"/                filter: web  /^w/  owner=a  node=b  state!=serving",
		"                 lag>1000  !web; words must all hold; esc clears",
		"s S, r           sort by the next, the previous column; reverse",
		"p                pause: the screen stands still, and says how old it is",
		"f                the chart's scale stays as it is, or follows",
		"y                copy the incarnation, the table's id, or the event",
		"d u              drain a node, end its drain",
		"o                hand a table over to another owner",
		"R                start a roll, pause it, resume it",
		"                 what changes anything is asked first",
		"ctrl-z, q        to the background; quit",
		"",
		"nodes   ● serving   + joining: it is not ready, and says why",
		"        - draining   ? stale: it has a lease and is not heard",
		"        ✗ down: it has no lease",
		"tables  ● serving   » moving   - degraded: a replica is not live",
		"        ? unsure: its owner is silent   ✗ no owner   ! no quorum",
		"        replicas: a✗ not live, a+ comes, a- goes",
		"lag     entries that a replica lacks; - is not known",
		"lease   counts down, and is renewed each second",
	}
}

// helpBox is the help, from where it is scrolled to.
func (m *model) helpBox(h int) []line {
	all := helpLines()
	if m.th.ascii {
		for i := range all {
			all[i] = strings.NewReplacer("●", "*", "✗", "x", "»", ">").Replace(all[i])
		}
	}
	room := max(h-2, 1)
	from := max(0, min(m.scroll, len(all)-room))
	var lines []line
	for _, text := range all[from:min(len(all), from+room)] {
		var l line
		l.add(plain, "%s", text)
		lines = append(lines, l)
	}
	head := "help: any key closes it"
	if len(all) > room {
		head = "help: j k scroll, any other key closes it"
	}
	box := m.frame(head, lines, accent)
	if len(box) > h {
		return lines[:min(len(lines), h)]
	}
	return box
}
