package tui

import (
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
	} else {
		m.detailTop += by // and settle holds it to what there is
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
	m.notice = notice{} // it has been seen
	switch name {
	case "q":
		return m.quit()
	case "ctrl+z":
		return tea.Suspend
	case "1", "n":
		m.show(viewNodes)
	case "2", "t":
		m.show(viewTables)
	case "3", "e":
		m.show(viewEvents)
	case "4":
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
		m.fixed, m.scales = !m.fixed, [2]float64{}
	case "y":
		m.copyChosen()
	case "d":
		m.askDrain()
	case "u":
		m.askUndrain()
	case "o":
		m.askHandOver()
	case "R":
		return m.askRoll()
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

func (m *model) show(v view) { m.view, m.back, m.detailTop = v, nil, 0 }

func (m *model) enter(v view) {
	m.back = append(m.back, m.view)
	m.view, m.detailTop = v, 0
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
			m.table, m.scales = t.ID, [2]float64{}
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
		if l := m.list(); l == nil || l.filter == m.input.text {
			m.input = nil
		} else { // it is none: what is wrong is said again, and it can be mended
			m.typeFilter(m.input.text)
		}
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
