package tui

import (
	"fmt"
	"strings"

	"tidal/node/api"
)

// Sizes from which on there is room for more.
const (
	tinyWidth, tinyHeight = 20, 4 // below there are one or two lines
	tabsHeight            = 12    // a line that says which views there are
	paneWidth             = 150   // what is chosen is shown beside the list
	detailWidth           = 52    // of that pane
	fullHeader            = 76    // the whole first line
	manyProblems          = 10    // one line of problems for so many of the screen
)

// layout is how many lines each part of the screen has.
type layout struct {
	problems, tabs, body, footer int
}

func (m *model) layout() layout {
	l := layout{}
	if m.h < tinyHeight || m.w < tinyWidth {
		return l
	}
	if n := len(m.p.problems(&m.th)); n > 0 {
		l.problems = min(n, 1+m.h/manyProblems)
	}
	if m.h >= tabsHeight {
		l.tabs = 1
	}
	if m.h >= 6 {
		l.footer = 1
	}
	l.body = m.h - 1 - l.problems - l.tabs - l.footer
	return l
}

// View implements tea.Model. No line is wider than the screen, and there are never
// more than it has.
func (m *model) View() string {
	if m.w <= 0 || m.h <= 0 {
		return ""
	}
	return strings.Join(m.screen(), "\n")
}

func (m *model) screen() []string {
	l := m.layout()
	problems := m.p.problems(&m.th)
	if m.h < tinyHeight || m.w < tinyWidth {
		return m.tiny(problems)
	}
	out := []string{m.th.draw(m.header(problems), m.w, false)}
	for i := range l.problems {
		out = append(out, m.th.draw(m.problem(problems, i, l.problems), m.w, false))
	}
	if l.tabs > 0 {
		out = append(out, m.th.draw(m.tabs(), m.w, false))
	}
	body := m.body(l.body)
	if m.help {
		body = m.overlay(body, m.helpBox(l.body), l.body)
	}
	if m.dialog != nil {
		body = m.overlay(body, m.dialogBox(), l.body)
	}
	for len(body) < l.body {
		body = append(body, "")
	}
	out = append(out, body[:max(l.body, 0)]...)
	if l.footer > 0 {
		foot := m.footer(1 + l.body)
		out = out[:len(out)-len(foot)+1]
		for _, x := range foot {
			out = append(out, m.th.draw(x, m.w, false))
		}
	}
	return out
}

// tiny is a screen that has room for a word: how the cluster is, and what is worst.
func (m *model) tiny(problems []problem) []string {
	var first, second line
	st, word := m.verdict(problems)
	first.add(st, "%s", word)
	if m.p.Status != nil {
		ready, all := m.ready()
		first.add(plain, " %d/%d", ready, all)
		if w := m.p.Status.Window; w != nil {
			first.add(plain, " %st", amount(float64(w.Total)))
		}
	}
	out := []string{m.th.draw(first, m.w, false)}
	if m.h > 1 {
		if len(problems) > 0 {
			second.add(bad, "%s", problems[0].text)
		} else {
			second.add(faint, "%s", clean(m.p.Cluster))
		}
		out = append(out, m.th.draw(second, m.w, false))
	}
	return out
}

// ready counts the nodes that serve.
func (m *model) ready() (ready, all int) {
	for _, r := range m.p.nodes(&m.th) {
		all++
		if r.state == "serving" {
			ready++
		}
	}
	return ready, all
}

// verdict says in a word how the cluster is.
func (m *model) verdict(problems []problem) (style, string) {
	switch {
	case m.p.Status == nil && m.p.Tries == 0:
		return strong, "asking"
	case m.p.old():
		return alarm, "NO ANSWER"
	case len(problems) > 0 && problems[0].bad:
		return alarm, "TROUBLE"
	case degraded(problems):
		return moving, "degraded"
	case len(problems) > 0:
		return draining, "draining"
	}
	return good, "all well"
}

// header is the first line: which cluster, how it is, and how old that is. What has
// no room is left out, the least important first.
func (m *model) header(problems []problem) line {
	var l line
	st, word := m.verdict(problems)
	l.add(title, " %s ", clean(m.p.Cluster))
	l.add(st, " %s ", word)
	if m.p.Status == nil {
		return l
	}
	age, who, tail := m.headAge()
	l.parts = append(l.parts, age.parts...)
	for _, piece := range m.headPieces() {
		if l.width()+piece.width()+tail.width() < m.w {
			l.parts = append(l.parts, piece.parts...)
		}
	}
	if l.width()+who.width()+tail.width() < m.w {
		tail.parts = append(who.parts, tail.parts...)
	}
	if free := m.w - l.width() - tail.width(); free >= 1 {
		l.add(plain, "%s", strings.Repeat(" ", free))
		l.parts = append(l.parts, tail.parts...)
	}
	return l
}

// headAge returns how old what is shown is, right behind how it is if it is old, and
// else at the end of the line, with who says so and when.
func (m *model) headAge() (front, who, tail line) {
	if m.p.old() || m.paused {
		front.add(alarm, "%s ", m.ageText())
	}
	who.add(faint, " via %s", clean(m.p.Status.Node))
	tail.add(plain, " %s", m.ageText())
	if m.w >= 60 {
		tail.add(faint, "  %s ", m.p.Now.UTC().Format("15:04:05Z"))
	}
	return front, who, tail
}

// headPieces are what the first line says of the cluster.
func (m *model) headPieces() []line {
	var out []line
	piece := func(name string, st style, format string, args ...any) *line {
		var l line
		l.add(faint, "  %s ", name)
		l.add(st, format, args...)
		out = append(out, l)
		return &out[len(out)-1]
	}
	ready, all := m.ready()
	piece("nodes", strong, "%d/%d", ready, all)
	if r := m.p.Roll; r != nil && r.Status.Open() {
		piece("roll", moving, "%d %s", r.ID, clean(string(r.Status)))
	}
	w := m.p.Status.Window
	if w == nil {
		return out
	}
	t := piece("tables", strong, "%s", amount(float64(w.Total)))
	if n := w.States[api.TableMoving]; n > 0 {
		t.add(moving, " %s%d moving", m.th.glyph("»", ">"), n)
	}
	if w.MaxLag != nil {
		piece("lag", plain, "%s", amount(float64(*w.MaxLag)))
	}
	if w.Writes != nil {
		piece("writes", plain, "%s/s", amount(*w.Writes))
	}
	if leader := m.p.Status.MetaLeader; leader != "" {
		piece("meta", plain, "%s", clean(leader)).add(faint, " term %d", m.p.Status.MetaTerm)
	}
	if w.Writes != nil && m.w >= 110 {
		piece("", good, "%s", bars(minute(m.p.Writes, m.o.Interval, 16), 16, m.th.bars()))
	}
	return out
}

// ageText says how old what is shown is.
func (m *model) ageText() string {
	switch {
	case m.p.Status == nil:
		return ""
	case m.paused:
		return "paused, " + span(m.now().Sub(m.p.At)) + " old"
	case m.p.old():
		return span(m.p.age()) + " old"
	}
	return "live"
}

// problem is one of the lines that say what is not well; the last one says how many
// more there are.
func (m *model) problem(list []problem, i, shown int) line {
	var l line
	st, mark := moving, " ? "
	if list[i].bad {
		st, mark = bad, " ! "
	}
	l.add(st, "%s%s", mark, list[i].text)
	if more := len(list) - shown; i == shown-1 && more > 0 {
		tail := fmt.Sprintf("  (+%d more)", more)
		l.parts[0].text = strings.TrimRight(fit(l.parts[0].text, max(m.w-len(tail), 1), false, m.th.more()), " ")
		l.add(faint, "%s", tail)
	} else {
		l.parts[0].text = strings.TrimRight(fit(l.parts[0].text, m.w, false, m.th.more()), " ")
	}
	return l
}

// tabs is the line of the views, with the path to where one is.
func (m *model) tabs() line {
	var l line
	for i, name := range []string{"nodes", "tables", "events", "rolls"} {
		l.add(faint, " %d", i+1)
		if m.top() == view(i) {
			l.add(title, " %s ", name)
		} else {
			l.add(plain, " %s ", name)
		}
	}
	switch m.view {
	case viewNode:
		l.add(faint, "  nodes %s ", m.th.glyph("›", ">"))
		l.add(strong, "%s", m.node)
	case viewTable:
		l.add(faint, "  tables %s ", m.th.glyph("›", ">"))
		name := m.table.String()
		if t := m.chosenTable(); t != nil {
			name = clean(t.Name)
		}
		l.add(strong, "%s", name)
	case viewNodes, viewTables, viewEvents, viewRolls:
	}
	if x := m.list(); x != nil && x.filter != "" {
		l.add(faint, "  filter ")
		l.add(accent, "%s", clean(x.filter))
		n, _ := m.rows()
		l.add(faint, "  (%d)", n)
	}
	return l
}

// footer is the last line: what is typed, what came of a key, or which keys there are.
// What came of a key takes more lines if it must, over the body.
func (m *model) footer(most int) []line {
	var out []line
	if m.notice.text != "" && m.now().Before(m.notice.until) {
		st := good
		if m.notice.bad {
			st = bad
		}
		for _, text := range wrap(m.notice.text, m.w-2) {
			var l line
			l.add(st, " %s", text)
			out = append(out, l)
		}
	}
	var l line
	switch {
	case m.input != nil:
		l.add(accent, " / ")
		l.add(plain, "%s", m.input.text)
		l.add(strong, "%s", m.th.glyph("▏", "_"))
	case len(out) > 0:
		return out[:min(len(out), most)]
	case m.dialog != nil:
		l.add(accent, " esc")
		l.add(faint, " leaves it, and nothing is done")
	default:
		l = m.footerHint()
	}
	return append(out[:min(len(out), most-1)], l)
}

// footerHint is the line of the keys.
func (m *model) footerHint() line {
	var l line
	for _, k := range m.footerKeys() {
		key, what, _ := strings.Cut(k, " ")
		if l.width()+len(k)+3 > m.w {
			break
		}
		l.add(accent, " %s", key)
		l.add(faint, " %s ", what)
	}
	return l
}

func (m *model) footerKeys() []string {
	var keys []string
	switch m.view {
	case viewNodes:
		keys = []string{"enter open", "/ filter", "s sort", "r reverse", "d drain", "u undrain", "R roll"}
	case viewTables:
		keys = []string{"enter open", "/ filter", "s sort", "r reverse", "o hand over"}
	case viewEvents:
		keys = []string{"enter go there", "/ filter"}
	case viewRolls:
		keys = []string{m.rollKeyText()}
	case viewNode:
		keys = []string{"enter its tables", "d drain", "u undrain", "esc back"}
	case viewTable:
		keys = []string{"f scale", "o hand over", "esc back"}
	}
	if m.o.ReadOnly {
		keys = withoutActions(keys)
	}
	return append([]string{"? help", "q quit"}, append(keys, "p pause", "y copy", "tab next")...)
}

func withoutActions(keys []string) []string {
	var out []string
	for _, k := range keys {
		if !strings.ContainsRune("duoR", rune(k[0])) {
			out = append(out, k)
		}
	}
	return out
}

// body is the middle of the screen.
func (m *model) body(h int) []string {
	if h <= 0 {
		return nil
	}
	if m.p.Status == nil {
		return m.waiting()
	}
	w := m.w
	var pane []line
	if m.w >= paneWidth && (m.view == viewNodes || m.view == viewTables) {
		w -= detailWidth + 3
		pane = m.pane()
	}
	var out []string
	switch m.view {
	case viewNodes:
		out = m.nodeList(w, h, pane != nil)
	case viewTables:
		out = m.tableList(w, h, pane != nil)
	case viewEvents:
		out = m.eventList(w, h)
	case viewRolls:
		out = m.rollList(w, h)
	case viewNode, viewTable:
		return m.lines(m.detail(h), h)
	}
	if pane == nil {
		return out
	}
	for i := range h {
		if i >= len(out) {
			out = append(out, strings.Repeat(" ", w))
		}
		out[i] += m.th.paint(faint, false, " "+m.th.glyph("│", "|")+" ")
		if i < len(pane) {
			out[i] += m.th.draw(pane[i], detailWidth, false)
		}
	}
	return out
}

// detail is the screen of one node or table, which may be longer than there is room.
func (m *model) detail(h int) []line {
	switch {
	case m.p.Status == nil:
	case m.view == viewNode:
		return m.nodeDetail(m.w)
	case m.view == viewTable:
		return m.tableDetail(m.w, h)
	}
	return nil
}

// lines are those of a detail that there is room for.
func (m *model) lines(list []line, h int) []string {
	list = list[min(m.detailTop, len(list)):]
	var out []string
	for _, l := range list[:min(h, len(list))] {
		out = append(out, m.th.draw(l, m.w, false))
	}
	if rest := len(list) - h; rest > 0 && h > 1 {
		var l line
		l.add(faint, "  %s %d more lines: j", m.th.glyph("▾", "v"), rest+1)
		out[h-1] = m.th.draw(l, m.w, false)
	}
	return out
}

// waiting is the body while nobody has answered yet.
func (m *model) waiting() []string {
	var a, b line
	a.add(plain, "  asking the nodes of %s", clean(m.p.Cluster))
	if m.p.Err != "" {
		b.add(faint, "  %s", clean(m.p.Err))
	}
	return []string{"", m.th.draw(a, m.w, false), "", m.th.draw(b, m.w, false)}
}

// empty is the body of a list without rows.
func (m *model) empty(w int, text string) string {
	var l line
	l.add(faint, "  %s", text)
	return m.th.draw(l, w, true)
}
