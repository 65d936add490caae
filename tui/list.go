package tui

// list is a cursor in rows that come, go and change places. It follows its row by
// the row's key, once it was moved; before that it stays at the top.
type list struct {
	key    string // of the row under the cursor; "": the first one, whichever that is
	index  int    // of the cursor
	top    int    // first row shown
	height int    // rows shown
	sort   string // column, with a minus in front if the other way round
	filter string
}

// settle puts the cursor where its row is now. find returns where a key is, keyOf
// which key is somewhere, "" if that is not known yet.
func (l *list) settle(n, height int, find func(string) (int, bool), keyOf func(int) string) {
	l.height = max(height, 0)
	switch i, found := find(l.key); {
	case l.key == "":
		// It was moved to a row that was not here yet, or never.
	case found:
		l.index = i
	default: // the row is gone: its neighbour is next
		l.key = ""
		if i = min(l.index, n-1); i > 0 {
			l.index, l.key = i, keyOf(i)
		} else {
			l.index = 0
		}
	}
	l.index = max(0, min(l.index, n-1))
	if l.key == "" && l.index > 0 {
		l.key = keyOf(l.index)
	}
	l.top = max(min(l.top, l.index, n-l.height), l.index-l.height+1, 0)
}

// move moves the cursor among n rows.
func (l *list) move(by, n int, keyOf func(int) string) {
	l.index = max(0, min(l.index+by, n-1))
	l.key = ""
	if l.index > 0 {
		l.key = keyOf(l.index)
	}
	l.top = max(min(l.top, l.index), l.index-l.height+1, 0)
}

// column is one column of a list.
type column struct {
	id    string // to sort by; "": it cannot be sorted by
	title string
	width int  // cells; of the first column the most
	right bool // numbers stand at the right
	rank  int  // columns of a high rank go first when there is little room
}

// cell is what stands in a column of a row.
type cell struct {
	text  string
	style style
}

const (
	gutter = 2 // cells before the first column, for the cursor
	gap    = 2 // cells between columns
)

// choose returns which columns fit into w cells, and how wide each is. The first one
// gets what is left, up to its width, and at least narrowest.
func choose(cols []column, w, narrowest int) (chosen, widths []int) {
	used := gutter + narrowest
	take := make([]bool, len(cols))
	take[0] = true
	for rank := range 10 {
		for i, c := range cols {
			if i > 0 && c.rank == rank && used+gap+c.width <= w {
				take[i] = true
				used += gap + c.width
			}
		}
	}
	first := min(cols[0].width, narrowest+max(0, w-used))
	for i, c := range cols {
		switch {
		case i == 0:
			chosen, widths = append(chosen, i), append(widths, max(1, min(first, w-gutter)))
		case take[i]:
			chosen, widths = append(chosen, i), append(widths, c.width)
		}
	}
	return chosen, widths
}

// heading returns the line of the titles; the column that is sorted by has an arrow.
func (t *theme) heading(cols []column, chosen, widths []int, by string) line {
	var l line
	l.add(faint, "  ")
	for n, i := range chosen {
		c := cols[i]
		text, st := c.title, faint
		if c.id != "" && (by == c.id || by == "-"+c.id) {
			st = accent
			mark := t.glyph("▴", "^")
			if by[0] == '-' {
				mark = t.glyph("▾", "v")
			}
			if width(text)+1 > widths[n] {
				text = cut(text, widths[n]-1)
			}
			text += mark
		}
		if n > 0 {
			l.add(faint, "  ")
		}
		l.add(st, fit(text, widths[n], c.right, ""))
	}
	return l
}

// row returns the line of a row.
func (t *theme) row(cols []column, cells []cell, chosen, widths []int, selected bool) line { //nolint:revive // a row is all of it
	l := line{selected: selected}
	mark := "  "
	if selected {
		mark = t.glyph("▸ ", "> ")
	}
	l.add(accent, mark)
	for n, i := range chosen {
		if n > 0 {
			l.add(plain, "  ")
		}
		l.add(cells[i].style, fit(cells[i].text, widths[n], cols[i].right, t.more()))
	}
	return l
}
