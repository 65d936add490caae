package tui

import (
	"context"
	"fmt"
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"tidal/node/api"
)

// keys takes what was typed. Keys that arrive together come as one message.
func (m *model) keys(msg tea.KeyMsg) tea.Cmd {
	if msg.Type != tea.KeyRunes || len(msg.Runes) <= 1 && !msg.Paste {
		return m.key(msg.String(), string(msg.Runes))
	}
	if msg.Paste {
		m.paste(string(msg.Runes))
		return nil
	}
	var all []tea.Cmd
	for _, r := range msg.Runes {
		all = append(all, m.key(string(r), string(r)))
	}
	return tea.Sequence(all...)
}

// paste puts text where text is typed, and does nothing elsewhere.
func (m *model) paste(text string) {
	text = strings.Join(strings.Fields(clean(text)), " ")
	switch {
	case m.dialog != nil:
		m.dialog.typed += text
	case m.input != nil:
		m.typeFilter(m.input.text + text)
	}
}

// key takes one key, and what it types if it types anything.
func (m *model) key(name, text string) tea.Cmd {
	if name == "ctrl+c" {
		return func() tea.Msg { return tea.InterruptMsg{} }
	}
	switch {
	case m.dialog != nil:
		return m.dialogKey(name, text)
	case m.input != nil:
		m.inputKey(name, text)
		return nil
	case m.help:
		m.helpKey(name)
		return nil
	}
	if m.moveKey(name) {
		return nil
	}
	return m.viewKey(name)
}

// moveKey moves the cursor, and reports whether the key does that.
func (m *model) moveKey(name string) bool {
	by, ok := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -max(m.page(), 1), "pgdown": max(m.page(), 1),
		"ctrl+u": -max(m.page()/2, 1), "ctrl+d": max(m.page()/2, 1), "home": -1 << 30, "g": -1 << 30, "end": 1 << 30, "G": 1 << 30,
	}[name]
	if !ok {
		return false
	}
	if l := m.list(); l != nil {
		n, keyOf := m.rows()
		l.move(by, n, keyOf)
	}
	return true
}

func (m *model) page() int {
	if l := m.list(); l != nil {
		return l.height
	}
	return 1
}

// viewKey takes the keys that choose what is shown and what is done.
func (m *model) viewKey(name string) tea.Cmd {
	switch name {
	case "q":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	case "1", "n":
		m.show(viewNodes)
	case "2", "t":
		m.show(viewTables)
	case "3", "e":
		m.show(viewEvents)
	case "4", "o":
		m.show(viewRolls)
	case "tab":
		m.show((m.top() + 1) % lists)
	case "shift+tab":
		m.show((m.top() + lists - 1) % lists)
	case "?", "h", "f1":
		m.help, m.scroll = true, 0
	case "esc", "backspace", "left":
		m.leave()
	case "enter", "right", "l":
		m.open()
	case "p", " ":
		m.paused = !m.paused
		m.look()
	case "f":
		m.fixed, m.scale = !m.fixed, 0
	case "y":
		m.copyChosen()
	case "d":
		m.askDrain()
	case "u":
		m.askUndrain()
	default:
		m.listKey(name)
	}
	return nil
}

// listKey takes the keys of a list's order and filter.
func (m *model) listKey(name string) {
	l := m.list()
	if l == nil {
		return
	}
	switch name {
	case "/":
		if m.view != viewRolls {
			m.input = &input{text: l.filter, was: l.filter}
		}
	case "s", ">", "S", "<":
		cols := m.sortable()
		if len(cols) == 0 {
			return
		}
		by, down := strings.CutPrefix(l.sort, "-")
		step := 1
		if name == "S" || name == "<" {
			step = len(cols) - 1
		}
		l.sort = cols[(slices.Index(cols, by)+step)%len(cols)]
		if down {
			l.sort = "-" + l.sort
		}
	case "r":
		if by, down := strings.CutPrefix(l.sort, "-"); down {
			l.sort = by
		} else if by != "" {
			l.sort = "-" + by
		}
	}
}

// sortable returns the columns that the list of the view can be sorted by.
func (m *model) sortable() []string {
	switch m.view {
	case viewNodes:
		return nodeColumnsSorted()
	case viewTables:
		return api.TableColumns()
	case viewEvents, viewRolls, viewNode, viewTable:
	}
	return nil
}

// lists is how many views there are beside each other.
const lists = 4

// top returns the list that the view belongs to.
func (m *model) top() view {
	switch m.view {
	case viewNode:
		return viewNodes
	case viewTable:
		return viewTables
	case viewNodes, viewTables, viewEvents, viewRolls:
	}
	return m.view
}

func (m *model) show(v view) { m.view, m.back = v, nil }

func (m *model) enter(v view) {
	m.back = append(m.back, m.view)
	m.view = v
}

// leave goes back one step: out of a detail, or out of a filter.
func (m *model) leave() {
	switch l := m.list(); {
	case len(m.back) > 0:
		m.view, m.back = m.back[len(m.back)-1], m.back[:len(m.back)-1]
	case l != nil && l.filter != "":
		l.filter = ""
	case m.view == viewNode || m.view == viewTable:
		m.view = m.top()
	}
}

// open goes one step deeper: from a list to the row under the cursor, from a node to
// its tables.
func (m *model) open() {
	switch m.view {
	case viewNodes:
		if r := m.chosenNode(); r != nil {
			m.node = r.id
			m.enter(viewNode)
		}
	case viewNode:
		m.tables.filter, m.tables.key, m.tables.index = "node="+m.node, "", 0
		m.enter(viewTables)
	case viewTables:
		if t := m.chosenTable(); t != nil {
			m.table, m.scale = t.ID, 0
			m.enter(viewTable)
		}
	case viewEvents:
		m.openEvent()
	case viewRolls, viewTable:
	}
}

// openEvent goes to the node that an event is about.
func (m *model) openEvent() {
	rows := m.eventRows()
	if m.events.index >= len(rows) {
		return
	}
	e := rows[m.events.index]
	if e.Member == "" {
		if len(e.Tables) > 0 {
			m.tables.filter, m.tables.key, m.tables.index = "name="+e.Tables[0], "", 0
			m.enter(viewTables)
		}
		return
	}
	m.node = clean(e.Member)
	m.enter(viewNode)
}

func (m *model) copyChosen() {
	switch m.view {
	case viewNodes, viewNode:
		if r := m.chosenNode(); r != nil {
			m.yank("incarnation", r.incarnation)
		}
	case viewTables, viewTable:
		if t := m.chosenTable(); t != nil {
			m.yank("table id", t.ID.String())
		}
	case viewEvents:
		if rows := m.eventRows(); m.events.index < len(rows) {
			m.yank("event", rows[m.events.index].String())
		}
	case viewRolls:
		m.yank("roll", m.rollKey(m.rolls.index))
	}
}

// inputKey takes the keys of a filter that is being typed. It works at once.
func (m *model) inputKey(name, text string) {
	switch name {
	case "enter":
		m.input = nil
	case "esc":
		m.typeFilter(m.input.was)
		m.input = nil
	case "backspace":
		m.typeFilter(cut(m.input.text, width(m.input.text)-1))
	case "ctrl+u":
		m.typeFilter("")
	case "up", "down":
		m.moveKey(name)
	default:
		if text != "" {
			m.typeFilter(m.input.text + clean(text))
		}
	}
}

// typeFilter takes a filter that may not be whole yet: one that is none does not count.
func (m *model) typeFilter(text string) {
	l := m.list()
	if m.input == nil || l == nil {
		return
	}
	m.input.text = text
	var err error
	switch m.view {
	case viewNodes:
		_, err = api.ParseFilter(text, nodeColumnsSorted()[1:])
	case viewTables:
		_, err = api.ParseFilter(text, tableFields())
	case viewEvents:
		_, err = api.ParseFilter(text, eventFields())
	case viewRolls, viewNode, viewTable:
	}
	if err != nil {
		m.say(true, "%s", clean(err.Error()))
		return
	}
	l.filter, m.notice = text, notice{}
}

func (m *model) helpKey(name string) {
	switch name {
	case "up", "k":
		m.scroll--
	case "down", "j":
		m.scroll++
	case "pgup", "ctrl+u":
		m.scroll -= max(m.h/2, 1)
	case "pgdown", "ctrl+d", " ":
		m.scroll += max(m.h/2, 1)
	default:
		m.help = false
	}
	m.scroll = max(0, min(m.scroll, len(helpLines())-1))
}

// dialog asks before something is done. It is bound to the incarnation that was under
// the cursor when it was opened, whatever moves meanwhile.
type dialog struct {
	title  string
	text   []string
	want   string // must be typed; "": y is enough
	typed  string
	verb   string
	node   string
	was    api.Incarnation
	action func(ctx context.Context, node string) (string, error)
}

// askDrain opens the dialog about draining the node that is chosen.
func (m *model) askDrain() {
	r := m.target("drained")
	if r == nil {
		return
	}
	d := &dialog{
		title: "drain node " + r.id, verb: "drained", node: r.member.Node, was: r.member.Lease.Incarnation,
		text: []string{
			"incarnation " + r.incarnation,
			fmt.Sprintf("It hands its %s over to other nodes, and owns none", counted(int(r.owned), "table")),
			fmt.Sprintf("until it is undrained, for at most %s.", span(drainTTL)),
		},
	}
	if r.owned > 1 {
		d.want = r.id
	}
	d.action = func(ctx context.Context, node string) (string, error) {
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
	if r == nil {
		return
	}
	d := &dialog{
		title: "undrain node " + r.id, verb: "undrained", node: r.member.Node, was: r.member.Lease.Incarnation,
		text: []string{"incarnation " + r.incarnation, "It takes tables again. Whoever claimed its drain loses the claim."},
	}
	if c := r.local.Status.Claim; r.answered && c != nil {
		d.text = append(d.text, "Now "+claimedBy(r)+".")
	}
	d.action = func(ctx context.Context, node string) (string, error) {
		if _, err := m.o.Source.UndrainNode(ctx, node, api.NodeOrder{By: m.o.By}); err != nil {
			return "", fmt.Errorf("undrain node %s: %w", node, err)
		}
		return "node " + clean(node) + " takes tables again", nil
	}
	m.dialog = d
}

// target returns the node that an action is meant for, or says why there is none.
func (m *model) target(verb string) *nodeRow {
	r := m.chosenNode()
	switch {
	case r == nil:
		m.say(true, "nothing is %s here: choose a node (1)", verb)
		return nil
	case m.o.ReadOnly:
		m.say(true, "nothing is %s: this is read-only", verb)
		return nil
	case r.member.Lease == nil:
		m.say(true, "node %s is %s: it cannot be %s", r.id, r.state, verb)
		return nil
	}
	return r
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

// confirm does what the dialog asked about, if its node is still the same incarnation.
func (m *model) confirm() tea.Cmd {
	d := m.dialog
	m.dialog = nil
	p := m.world.snapshot(m.now()) // also while the screen is paused
	var now *api.Lease
	if p.Status != nil {
		for _, x := range p.Status.Members {
			if x.Node == d.node {
				now = x.Lease
			}
		}
	}
	switch {
	case p.old():
		m.say(true, "node %s was not %s: nobody answers now", clean(d.node), d.verb)
	case now == nil:
		m.say(true, "node %s was not %s: it has no lease any more", clean(d.node), d.verb)
	case now.Incarnation != d.was:
		m.say(true, "node %s was not %s: it has started again, as %s", clean(d.node), d.verb, clean(now.Incarnation.String()))
	default:
		m.say(false, "asking node %s…", clean(d.node))
		return m.act(m.o.ctx, func(ctx context.Context) (string, error) { return d.action(ctx, d.node) })
	}
	return nil
}
