package tui

import (
	"context"
	"fmt"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"tidal/node/api"
)

// dialog asks before something is done. It is bound to what was under the cursor when
// it was opened, whatever moves meanwhile.
type dialog struct {
	title   string
	text    []string
	choices []string // of which one is chosen; none: there is no choice
	choice  int
	want    string // must be typed; "": y is enough
	typed   string
	verb    string // what is done, in one word
	undone  string // how to begin to say that it was not
	asking  string // what is said while it is done
	// still returns why it cannot be done any more, "" if it can.
	still func(p *Picture) string
	do    func(ctx context.Context, choice int) (string, error)
	then  tea.Cmd // instead of do, what ends the program
}

// askDrain opens the dialog about draining the node that is chosen.
func (m *model) askDrain() {
	r := m.target("drained")
	if r == nil {
		return
	}
	d := m.nodeDialog(r, "drain", "drained")
	d.text = append(d.text,
		fmt.Sprintf("It hands its %s over to other nodes, and owns none", counted(int(r.owned), "table")),
		fmt.Sprintf("until it is undrained, for at most %s.", span(drainTTL)))
	if r.owned > 1 {
		d.want = r.id
	}
	node := r.member.Node
	d.do = func(ctx context.Context, _ int) (string, error) {
		report, err := m.o.Source.DrainNode(ctx, node, api.NodeOrder{TTL: drainTTL.String(), By: m.o.By})
		if err != nil {
			return "", fmt.Errorf("drain node %s: %w", node, err)
		}
		return fmt.Sprintf("node %s drains: %s left", clean(node), counted(report.Owned, "table")), nil
	}
	m.dialog = d
}

// askUndrain opens the dialog about ending a drain.
func (m *model) askUndrain() {
	r := m.target("undrained")
	switch {
	case r == nil:
		return
	case r.answered && r.local.Status.Claim == nil && !r.member.Lease.Draining:
		m.say(false, "node %s is not drained", r.id)
		return
	}
	d := m.nodeDialog(r, "undrain", "undrained")
	d.text = append(d.text, "It takes tables again. Whoever claimed its drain loses the claim.")
	if c := r.local.Status.Claim; r.answered && c != nil {
		d.text = append(d.text, "Now "+claimedBy(r)+".")
	}
	node := r.member.Node
	d.do = func(ctx context.Context, _ int) (string, error) {
		if _, err := m.o.Source.UndrainNode(ctx, node, api.NodeOrder{By: m.o.By}); err != nil {
			return "", fmt.Errorf("undrain node %s: %w", node, err)
		}
		return "node " + clean(node) + " takes tables again", nil
	}
	m.dialog = d
}

// nodeDialog is a dialog about one incarnation of a node.
func (m *model) nodeDialog(r *nodeRow, verb, done string) *dialog {
	was := r.member.Lease.Incarnation
	return &dialog{
		title: verb + " node " + r.id, verb: verb, text: []string{"incarnation " + r.incarnation},
		undone: fmt.Sprintf("node %s was not %s", r.id, done), asking: "asking node " + r.id + "…",
		still: func(p *Picture) string { return p.changed(was) },
	}
}

// changed returns what became of an incarnation, "" if it lives.
func (p *Picture) changed(was api.Incarnation) string {
	var now *api.Lease
	for _, x := range p.Status.Members {
		if x.Node == was.Node {
			now = x.Lease
		}
	}
	switch {
	case now == nil:
		return "it has no lease any more"
	case now.Incarnation != was:
		return "it has started again, as " + clean(now.Incarnation.String())
	}
	return ""
}

// target returns the node that an action is meant for, or says why there is none.
func (m *model) target(verb string) *nodeRow {
	r := m.chosenNode()
	switch {
	case r == nil:
		m.say(true, "nothing is %s here: choose a node (1)", verb)
		return nil
	case m.readOnly(verb):
		return nil
	case r.member.Lease == nil:
		m.say(true, "node %s is %s: it cannot be %s", r.id, r.state, verb)
		return nil
	}
	return r
}

// readOnly reports whether nothing may be done, and says so.
func (m *model) readOnly(verb string) bool {
	if m.o.ReadOnly {
		m.say(true, "nothing is %s: this is read-only", verb)
	}
	return m.o.ReadOnly
}

// dialogKey takes the keys of a dialog.
func (m *model) dialogKey(name, text string) tea.Cmd {
	d := m.dialog
	switch {
	case name == "esc" || d.want == "" && (name == "n" || name == "q" || name == "enter"):
		m.dialog = nil
		m.say(false, "nothing was done")
	case d.want == "" && (name == "y" || name == "Y"), d.want != "" && name == "enter" && d.typed == d.want:
		return m.confirm()
	case len(d.choices) > 0 && (name == "tab" || name == "right" || name == "down"):
		d.choice = (d.choice + 1) % len(d.choices)
	case len(d.choices) > 0 && (name == "shift+tab" || name == "left" || name == "up"):
		d.choice = (d.choice + len(d.choices) - 1) % len(d.choices)
	case d.want == "":
	case name == "enter":
		m.say(true, "type %s, or press esc", d.want)
	case name == "backspace":
		d.typed = cut(d.typed, width(d.typed)-1)
	case text != "":
		d.typed += clean(text)
	}
	return nil
}

// confirm does what the dialog asked about, if what it is about is still the same.
func (m *model) confirm() tea.Cmd {
	d := m.dialog
	m.dialog = nil
	if d.then != nil {
		return d.then
	}
	p := m.world.snapshot(m.now()) // also while the screen is paused
	if p.old() {
		m.say(true, "%s: nobody answers now", d.undone)
		return nil
	}
	if why := d.still(&p); why != "" {
		m.say(true, "%s: %s", d.undone, why)
		return nil
	}
	m.say(false, "%s", d.asking)
	return m.act(m.o.ctx, func(ctx context.Context) (string, error) { return d.do(ctx, d.choice) })
}

// dialogBox asks, and names what is meant.
func (m *model) dialogBox() []line {
	d := m.dialog
	var lines []line
	for _, text := range d.text {
		for _, part := range wrap(text, min(60, m.w-4)) {
			var l line
			l.add(plain, "%s", part)
			lines = append(lines, l)
		}
	}
	ask := m.dialogAsk()
	room := m.layout().body
	if len(d.choices) > 0 {
		lines = append(lines, line{}, m.dialogChoice())
	}
	lines = append(lines, line{}, ask)
	box := m.frame(d.title, lines, moving)
	if len(box) > room && room > 0 {
		// There is no room for the frame: the question alone, and how to answer.
		head := line{}
		head.add(moving, "%s", d.title+" ")
		head.add(plain, "%s", d.text[0])
		short := []line{head, ask}
		if len(d.choices) > 0 {
			short = []line{head, m.dialogChoice(), ask}
		}
		return short[max(0, len(short)-room):]
	}
	return box
}

// dialogAsk is the line that says how to answer.
func (m *model) dialogAsk() line {
	d := m.dialog
	var ask line
	if d.want == "" {
		ask.add(accent, "y")
		ask.add(plain, " %s   ", d.verb)
		ask.add(accent, "n")
		ask.add(plain, " leave it")
		return ask
	}
	ask.add(plain, "type ")
	ask.add(strong, "%s", d.want)
	ask.add(plain, " and enter, or esc: ")
	ask.add(accent, "%s%s", d.typed, m.th.glyph("▏", "_"))
	return ask
}

// dialogChoice is the line of what there is to choose from.
func (m *model) dialogChoice() line {
	d := m.dialog
	var l line
	l.add(plain, "to ")
	for i, c := range d.choices {
		if i == d.choice {
			l.add(title, "[%s]", c)
		} else {
			l.add(faint, " %s ", c)
		}
	}
	l.add(plain, "  ")
	l.add(accent, "tab")
	l.add(plain, " another")
	return l
}

// askHandOver opens the dialog about another owner of the table that is chosen.
func (m *model) askHandOver() {
	t := m.chosenTable()
	switch {
	case t == nil:
		m.say(true, "nothing is handed over here: choose a table (2)")
		return
	case m.readOnly("handed over"):
		return
	case t.Owner == "":
		m.say(true, "table %s has no owner: it cannot be handed over", clean(t.Name))
		return
	}
	owner := m.lease(t.Owner)
	if owner == nil {
		m.say(true, "node %s has no lease: table %s cannot be handed over", clean(t.Owner), clean(t.Name))
		return
	}
	nodes := m.takers(t)
	if len(nodes) == 0 {
		m.say(true, "no other node can own table %s now", clean(t.Name))
		return
	}
	d := &dialog{
		title: "hand over table " + cut(clean(t.Name), 40), verb: "hand over", asking: "asking node " + clean(t.Owner) + "…",
		undone:  "table " + clean(t.Name) + " was not handed over",
		choices: append([]string{"any"}, nodes...),
		text: []string{
			"id " + t.ID.String(),
			"owned by " + clean(t.Owner) + ", incarnation " + clean(owner.Incarnation.String()),
			fmt.Sprintf("It stays where it goes for %s, and then goes to its place. Its requests wait meanwhile.", span(api.DefaultStay)),
		},
	}
	name, id, was := t.Name, t.ID, owner.Incarnation
	d.still = func(p *Picture) string {
		if why := p.changed(was); why != "" {
			return "its owner " + clean(was.Node) + ": " + why
		}
		for i := range p.Status.Tables {
			if x := &p.Status.Tables[i]; x.ID == id && x.Owner != was.Node {
				return "its owner is " + orNone(clean(x.Owner)) + " now"
			}
		}
		return ""
	}
	d.do = func(ctx context.Context, choice int) (string, error) {
		o := api.HandOver{ID: &id, Owner: &was, By: m.o.By}
		if choice > 0 {
			o.To = nodes[choice-1]
		}
		now, err := m.o.Source.HandTable(ctx, name, o)
		if err != nil {
			return "", fmt.Errorf("hand table %s over: %w", name, err)
		}
		return fmt.Sprintf("table %s is owned by %s", clean(name), clean(now.Owner)), nil
	}
	m.dialog = d
}

// lease returns a node's lease, nil if it has none.
func (m *model) lease(node string) *api.Lease {
	for i := range m.p.Status.Members {
		if x := &m.p.Status.Members[i]; x.Node == node {
			return x.Lease
		}
	}
	return nil
}

// takers returns the other nodes that could own a table.
func (m *model) takers(t *api.Table) []string {
	var out []string
	for _, r := range t.Replicas {
		l := m.lease(r.Node)
		if r.Node != t.Owner && r.Voter && r.Live && !r.Leaving && l != nil && !l.Draining {
			out = append(out, r.Node)
		}
	}
	return out
}

// quit ends the program; it asks first if a roll is carried out here.
func (m *model) quit() tea.Cmd {
	if m.o.Roller == nil {
		return tea.Quit
	}
	id, doing := m.o.Roller.Running()
	if id == 0 {
		return tea.Quit
	}
	m.dialog = &dialog{
		title: "leave", verb: "leave", then: tea.Quit,
		text: []string{
			fmt.Sprintf("roll %d is carried out from here: %s", id, strings.TrimSpace(clean(doing))),
			"It pauses at the next place where that is safe, and this command ends then. tidal roll resume goes on.",
		},
	}
	return nil
}
