package tui

import (
	"fmt"
	"strings"
)

// style is what a piece of text means; the theme says how that looks.
type style uint8

const (
	plain style = iota
	faint
	strong
	title
	good
	moving
	joining
	draining
	unsure
	bad
	alarm // in reverse: it cannot be overlooked
	calm  // the opposite: all is well
	accent
	styles
)

// theme is how styles look, as parameters of SGR, and which characters are drawn.
type theme struct {
	sgr      [styles]string
	selected string // is added to the styles of the row under the cursor
	ascii    bool
}

// Themes returns the names of the themes.
func Themes() []string { return []string{"auto", "dark", "light", "colour-blind", "mono"} }

// newTheme returns the theme of that name: mono has attributes alone, none not even
// those.
func newTheme(name string, ascii bool) (theme, error) {
	t := theme{ascii: ascii}
	switch name {
	case "dark", "auto":
		t.sgr = [styles]string{
			faint: "38;5;245", strong: "1", title: "1;38;5;81", good: "38;5;75", moving: "38;5;214", joining: "38;5;147",
			draining: "38;5;221", unsure: "38;5;250", bad: "1;38;5;203", alarm: "1;38;5;231;48;5;160", calm: "1;38;5;16;48;5;75", accent: "38;5;81",
		}
		t.selected = "48;5;238"
	case "light":
		t.sgr = [styles]string{
			faint: "38;5;243", strong: "1", title: "1;38;5;25", good: "38;5;25", moving: "38;5;130", joining: "38;5;61",
			draining: "38;5;94", unsure: "38;5;240", bad: "1;38;5;160", alarm: "1;38;5;231;48;5;160", calm: "1;38;5;231;48;5;25", accent: "38;5;25",
		}
		t.selected = "48;5;254"
	case "colour-blind": // blue and orange, and brightness: no red beside green
		t.sgr = [styles]string{
			faint: "38;5;246", strong: "1", title: "1;38;5;117", good: "38;5;39", moving: "38;5;222", joining: "38;5;153",
			draining: "38;5;222", unsure: "38;5;250", bad: "1;38;5;208", alarm: "1;38;5;16;48;5;208", calm: "1;38;5;16;48;5;39", accent: "38;5;117",
		}
		t.selected = "48;5;238"
	case "mono":
		t.sgr = [styles]string{faint: "2", strong: "1", title: "1", bad: "1", alarm: "1;7", calm: "1", accent: "1"}
		t.selected = "7"
	case "none":
	default:
		return t, fmt.Errorf("there is no theme %q: the themes are %s", clean(name), strings.Join(Themes(), ", "))
	}
	return t, nil
}

// paint writes text in a style.
func (t *theme) paint(st style, selected bool, s string) string { //nolint:revive // the flag is the row's
	sgr := t.sgr[st]
	if selected && t.selected != "" {
		if sgr != "" {
			sgr += ";"
		}
		sgr += t.selected
	}
	if sgr == "" || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

// glyph returns one of two ways to draw something.
func (t *theme) glyph(fancy, ascii string) string {
	if t.ascii {
		return ascii
	}
	return fancy
}

func (t *theme) more() string { return t.glyph("…", "~") }

// bars returns the heights of a bar, from nothing to as high as leaves a gap to the
// line above.
func (t *theme) bars() []string {
	if t.ascii {
		return []string{"_", ".", "-", "=", "#"}
	}
	return []string{"▁", "▁", "▂", "▃", "▄", "▅", "▆", "▇"}
}

// columns returns the parts of a full cell, for charts.
func (t *theme) columns() []string {
	if t.ascii {
		return []string{"_", "#"}
	}
	return []string{"▁", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
}

// line is a line of the screen, made of pieces.
type line struct {
	parts    []part
	selected bool
}

type part struct {
	style style
	text  string
}

func (l *line) add(st style, format string, args ...any) {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	l.parts = append(l.parts, part{st, format})
}

func (l *line) width() int {
	n := 0
	for _, p := range l.parts {
		n += width(p.text)
	}
	return n
}

// text is what a line says, whatever it looks like.
func (l *line) text() string {
	var b strings.Builder
	for _, p := range l.parts {
		b.WriteString(p.text)
	}
	return b.String()
}

// narrowMark is the least width at which a line that is cut off is marked.
const narrowMark = 12

// draw writes a line that takes at most w cells, or exactly w if it is filled. One that
// has no room is marked at its end.
func (t *theme) draw(l line, w int, fill bool) string { //nolint:revive // the flag is the pane's
	var b strings.Builder
	left, mark := w, ""
	if w >= narrowMark && width(strings.TrimRight(l.text(), " ")) > w {
		mark = t.more()
		left -= width(mark)
	}
	for _, p := range l.parts {
		s := cut(p.text, left)
		left -= width(s)
		if len(s) < len(p.text) {
			s += mark
			b.WriteString(t.paint(p.style, l.selected, s))
			break
		}
		b.WriteString(t.paint(p.style, l.selected, s))
	}
	if (fill || l.selected) && left > 0 {
		b.WriteString(t.paint(plain, l.selected, strings.Repeat(" ", left)))
	}
	return b.String()
}
