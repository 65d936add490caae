package tui

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"tidal/node/api"
)

func nodeColumns() []column {
	return []column{
		{id: "name", title: "NODE", width: 32},
		{id: "state", title: "STATE", width: 13, rank: 0},
		{id: "lease", title: "LEASE", width: 6, right: true, rank: 1},
		{id: "owned", title: "OWNS", width: 6, right: true, rank: 1},
		{id: "held", title: "HOLDS", width: 6, right: true, rank: 4},
		{id: "meta", title: "META", width: 7, rank: 3},
		{id: "requests", title: "REQ/S", width: 6, right: true, rank: 2},
		{id: "p99", title: "P99", width: 6, right: true, rank: 2},
		{id: "disk", title: "FREE", width: 5, right: true, rank: 5},
		{id: "cert", title: "CERT", width: 5, right: true, rank: 5},
		{id: "up", title: "UP", width: 5, right: true, rank: 4},
		{id: "zone", title: "ZONE", width: 8, rank: 7},
		{id: "version", title: "VERSION", width: 14, rank: 7},
		{id: "incarnation", title: "INCARNATION", width: 18, rank: 6},
		{id: "address", title: "ADDRESS", width: 30, rank: 8},
	}
}

// nodeList is the list of nodes.
func (m *model) nodeList(w, h int, fill bool) []string {
	cols, rows := nodeColumns(), m.nodeRows()
	chosen, widths := choose(cols, w, m.nameWidth(rows))
	out := []string{m.th.draw(m.th.heading(cols, chosen, widths, m.nodes.sort), w, fill)}
	if len(rows) == 0 {
		return append(out, m.empty(w, "no node matches the filter; esc clears it"))
	}
	for i := m.nodes.top; i < min(len(rows), m.nodes.top+h-1); i++ {
		l := m.th.row(cols, nodeCells(&rows[i]), chosen, widths, i == m.nodes.index)
		out = append(out, m.th.draw(l, w, fill))
	}
	for _, l := range m.latest(h - len(out)) {
		out = append(out, m.th.draw(l, w, fill))
	}
	return out
}

// latest is what happened last, where there is room for some lines of it.
func (m *model) latest(room int) []line {
	if room < 4 || len(m.p.Events) == 0 {
		return nil
	}
	out := []line{{}, {}}
	out[1].add(faint, "  WHAT HAPPENED LAST")
	for _, e := range slices.Backward(m.p.Events) {
		if len(out) == room {
			break
		}
		var l line
		l.add(faint, "  %s  ", e.Time.UTC().Format("15:04:05"))
		l.add(eventStyle(&e), "%s", clean(e.String()))
		out = append(out, l)
	}
	return out
}

// nameWidth is how wide the column of names is at least.
func (m *model) nameWidth(rows []nodeRow) int {
	n := 6
	for _, r := range rows {
		n = max(n, width(r.id))
	}
	return min(n, 16)
}

func nodeCells(r *nodeRow) []cell {
	rest := plain
	if r.style == unsure || r.style == bad {
		rest = faint
	}
	seconds := func(n float64) string {
		if math.IsNaN(n) {
			return none
		}
		return span(time.Duration(n * float64(time.Second)))
	}
	lease := cell{seconds(r.lease), rest}
	if r.lease < 1 {
		lease.style = moving
	}
	free := cell{none, rest}
	if !math.IsNaN(r.space) {
		free.text = fmt.Sprintf("%.0f%%", 100*r.space)
		if r.low {
			free.style = bad
		}
	}
	cert := cell{seconds(r.cert), rest}
	if r.cert <= 0 {
		cert = cell{"over", bad}
	} else if r.cert < certSoon.Seconds() {
		cert.style = moving
	}
	meta := cell{r.meta, rest}
	if r.meta == "leader" && rest == plain {
		meta.style = accent
	}
	return []cell{
		{r.id, nameStyle(r)},
		{r.symbol + " " + stateText(r), r.style},
		lease,
		{amount(r.owned), rest},
		{amount(r.held), rest},
		meta,
		{amount(r.rate), rest},
		{seconds(r.p99), rest},
		free, cert,
		{seconds(r.up), rest},
		{orNone(r.zone), rest},
		{orNone(r.version), rest},
		{orNone(r.incarnation), rest},
		{orNone(r.address), faint},
	}
}

func nameStyle(r *nodeRow) style {
	if r.style == unsure {
		return faint
	}
	return strong
}

// stateText is the state; of a node that is silent, for how long.
func stateText(r *nodeRow) string {
	if r.state == "stale" && r.member.Silent != nil && !strings.HasPrefix(r.why, "this is") {
		return "stale " + span(time.Duration(*r.member.Silent)*time.Millisecond)
	}
	return r.state
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

func tableColumns() []column {
	return []column{
		{id: "name", title: "TABLE", width: 64},
		{id: "state", title: "STATE", width: 11, rank: 0},
		{id: "owner", title: "OWNER", width: 8, rank: 1},
		{id: "lag", title: "LAG", width: 6, right: true, rank: 1},
		{id: "writes", title: "WRITES", width: 7, right: true, rank: 2},
		{id: "p99", title: "P99", width: 5, right: true, rank: 3},
		{title: "LAST MINUTE", width: 12, rank: 4},
		{id: "replicas", title: "REPLICAS", width: 18, rank: 3},
		{id: "place", title: "PLACE", width: 8, rank: 5},
		{id: "term", title: "TERM", width: 5, right: true, rank: 5},
		{id: "frontier", title: "FRONTIER", width: 9, right: true, rank: 6},
		{id: "id", title: "ID", width: 16, rank: 7},
	}
}

// tableList is the list of tables, of which a window is here.
func (m *model) tableList(w, h int, fill bool) []string {
	cols := tableColumns()
	name := 8
	for i := range m.p.Status.Tables {
		name = max(name, width(clean(m.p.Status.Tables[i].Name)))
	}
	chosen, widths := choose(cols, w, min(name, max(10, w/4)))
	out := []string{m.th.draw(m.th.heading(cols, chosen, widths, m.tables.sort), w, fill)}
	n := m.matched()
	if n == 0 {
		text := "there is no table yet: tidal tables create NAME"
		if m.tables.filter != "" {
			text = "no table matches the filter; esc clears it"
		}
		return append(out, m.empty(w, text))
	}
	for i := m.tables.top; i < min(n, m.tables.top+h-1); i++ {
		t := m.tableAt(i)
		if t == nil {
			out = append(out, m.empty(w, m.th.more()))
			continue
		}
		l := m.th.row(cols, m.tableCells(t), chosen, widths, i == m.tables.index)
		out = append(out, m.th.draw(l, w, fill))
	}
	for _, l := range m.latest(h - len(out)) {
		out = append(out, m.th.draw(l, w, fill))
	}
	return out
}

// tableLook returns the symbol and the style of a table's state.
func (m *model) tableLook(s api.TableState) (string, style) {
	switch s {
	case api.TableServing:
		return m.th.glyph("●", "*"), good
	case api.TableMoving:
		return m.th.glyph("»", ">"), moving
	case api.TableDegraded:
		return "-", draining
	case api.TableUnsure:
		return "?", unsure
	case api.TableNoOwner:
		return m.th.glyph("✗", "x"), bad
	case api.TableNoQuorum:
		return "!", alarm
	}
	return " ", plain
}

func (m *model) tableCells(t *api.Table) []cell {
	symbol, st := m.tableLook(t.State)
	rest := plain
	if m.p.old() {
		symbol, st, rest = "?", unsure, faint
	}
	lag, lagStyle := worstLag(t), rest
	if lag >= 1000 {
		lagStyle = moving
	}
	owner := cell{orNone(clean(t.Owner)), rest}
	if t.State == api.TableUnsure || m.p.old() {
		owner = cell{orNone(clean(t.Owner)) + "?", faint}
	}
	frontier := none
	if t.Frontier != nil {
		frontier = amount(float64(*t.Frontier))
	}
	return []cell{
		{clean(t.Name), strong},
		{symbol + " " + string(t.State), st},
		owner,
		{amount(lag), lagStyle},
		{amount(pointed(t.Writes)), rest},
		{secondsText(pointed(t.P99)), rest},
		{bars(minute(m.p.Tables[t.ID].Writes, m.o.Interval, 12), 12, m.th.bars()), good},
		{m.holders(t), rest},
		{orNone(clean(t.Place)), rest},
		{amount(float64(t.Term)), rest},
		{frontier, rest},
		{t.ID.String(), faint},
	}
}

func pointed(n *float64) float64 {
	if n == nil {
		return math.NaN()
	}
	return *n
}

// worstLag is the lag of the replica that is furthest behind, as far as known.
func worstLag(t *api.Table) float64 {
	lag := math.NaN()
	for _, r := range t.Replicas {
		if r.Lag != nil && !(float64(*r.Lag) <= lag) {
			lag = float64(*r.Lag)
		}
	}
	return lag
}

// holders names the nodes that hold the table: what is not live, and what comes and
// goes, has a mark.
func (m *model) holders(t *api.Table) string {
	var out []string
	for _, r := range t.Replicas {
		name := clean(r.Node)
		switch {
		case !r.Live:
			name += m.th.glyph("✗", "x")
		case r.Leaving:
			name += "-"
		case !r.Voter:
			name += "+"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func eventColumns() []column {
	return []column{
		{title: "WHAT", width: 400},
		{title: "TIME", width: 12, rank: 0},
		{title: "KIND", width: 13, rank: 1},
		{title: "TOLD BY", width: 8, rank: 2},
	}
}

// eventList is the list of events, the newest first: when, of which kind, what.
func (m *model) eventList(w, h int) []string {
	rows, cols := m.eventRows(), eventColumns()
	chosen, widths := choose(cols, w, min(60, max(10, w-2)))
	if len(chosen) > 1 { // the time stands first, what happened last
		chosen, widths = append(chosen[1:], chosen[0]), append(widths[1:], widths[0])
	}
	out := []string{m.th.draw(m.th.heading(cols, chosen, widths, ""), w, false)}
	if len(rows) == 0 {
		text := "nothing has happened yet"
		if m.events.filter != "" {
			text = "no event matches the filter; esc clears it"
		}
		return append(out, m.empty(w, text))
	}
	for i := m.events.top; i < min(len(rows), m.events.top+h-1); i++ {
		e := &rows[i]
		cells := []cell{
			{clean(e.String()), eventStyle(e)},
			{e.Time.UTC().Format("15:04:05.000"), faint},
			{string(e.Kind), faint},
			{clean(e.Node), faint},
		}
		out = append(out, m.th.draw(m.th.row(cols, cells, chosen, widths, i == m.events.index), w, false))
	}
	return out
}

func eventStyle(e *api.Event) style {
	switch e.Kind {
	case api.EventLeaseEnded:
		if e.Why == "not renewed" {
			return bad
		}
		return draining
	case api.EventRefused, api.EventNodeRefused, api.EventFenced:
		return bad
	case api.EventMetaLeader:
		if e.To == "" {
			return bad
		}
		return joining
	case api.EventOwner:
		if e.From == "" || e.Why == "to its place" {
			return plain
		}
		return moving
	case api.EventLease, api.EventUndrained:
		return good
	case api.EventDraining, api.EventClaim:
		return draining
	case api.EventSnapshot, api.EventReplicas:
		return joining
	case api.EventGap, api.EventHeartbeat, api.EventPhase, api.EventTableCreated, api.EventTableDropped:
	}
	return plain
}
