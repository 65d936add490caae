package tui

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/charmbracelet/lipgloss"
)

var rewrite = flag.Bool("rewrite", false, "write the golden screens anew")

func goldenSizes() [][2]int { return [][2]int{{200, 50}, {120, 40}, {80, 24}, {40, 10}, {15, 2}} }

// goldenLook is how golden screens are drawn.
type goldenLook struct {
	theme string
	ascii bool
}

func goldenLooks() map[string]goldenLook {
	return map[string]goldenLook{"dark": {"dark", false}, "light": {"light", false}, "ascii": {"none", true}, "nocolor": {"mono", false}}
}

// goldenViews are the keys that lead to each view.
func goldenViews() map[string][]string {
	return map[string][]string{
		"nodes": nil, "tables": {"2", "j"}, "events": {"3"}, "rolls": {"4", "j"}, "node": {"j", "j", "j", "j", "enter"}, "table": {"2", "enter"},
		"help": {"?"}, "drain": {"d"}, "handover": {"2", "j", "o", "tab"}, "resume": {"4", "R"},
	}
}

// TestGoldenScreens compares whole screens, colours too, with those that somebody
// looked at.
func TestGoldenScreens(t *testing.T) {
	for look, l := range goldenLooks() {
		for view, keys := range goldenViews() {
			var all strings.Builder
			for _, size := range goldenSizes() {
				m := screenOf(t, newWorld(40), l.theme, l.ascii, size[0], size[1])
				m.o.Roller = &roller{}
				m.press(keys...)
				fmt.Fprintf(&all, "== %dx%d\n%s\n", size[0], size[1], m.View())
			}
			if view == "nodes" {
				m := screenOf(t, wellWorld(), l.theme, l.ascii, 80, 24)
				fmt.Fprintf(&all, "== well, 80x24\n%s\n", m.View())
			}
			// The escape character would make the files a danger to terminals.
			golden(t, view+"-"+look, strings.ReplaceAll(all.String(), "\x1b", "␛"))
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		a, b := strings.Split(string(want), "\n"), strings.Split(got, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("%s: line %d is\n%s\nand was\n%s\n(go test ./tui -rewrite, and look at the difference)", name, i+1, b[i], a[i])
			}
		}
		t.Fatalf("%s has %d lines, and had %d", name, len(b), len(a))
	}
}

// TestAnySize: at no size, in no view, does a screen have more lines or cells than the
// terminal, or panic.
func TestAnySize(t *testing.T) {
	widths := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20, 40, 80, 120, 200}
	heights := []int{0, 1, 2, 3, 4, 5, 6, 10, 24, 40}
	worlds := map[string]func() world{
		"trouble": func() world { return newWorld(40) },
		"none":    func() world { return newWorld(0) },
		"silent":  func() world { return &fixed{} },
	}
	for name, of := range worlds {
		for _, keys := range [][]string{nil, {"2"}, {"3"}, {"4"}, {"enter"}, {"2", "enter"}, {"enter", "enter"}, {"2", "f", "enter"}, {"2", "/", "owner=a"}} {
			for _, on := range []string{"", "?", "d", "o", "R"} {
				m := screenOf(t, of(), "dark", false, 80, 24)
				m.o.Roller = &roller{}
				m.press(keys...)
				if on != "" && m.input == nil {
					m.press(on)
				}
				for _, w := range widths {
					for _, h := range heights {
						m.w, m.h = w, h
						m.settle()
						check(t, fmt.Sprintf("%s, keys %q%q", name, keys, on), m.View(), w, h)
					}
				}
			}
		}
	}
}

func check(t *testing.T, what, screen string, w, h int) {
	t.Helper()
	lines := strings.Split(screen, "\n")
	if screen == "" {
		lines = nil
	}
	if len(lines) > h {
		t.Fatalf("%s at %dx%d: %d lines\n%s", what, w, h, len(lines), screen)
	}
	for _, l := range lines {
		if n := lipgloss.Width(l); n > w {
			t.Fatalf("%s at %dx%d: a line of %d cells: %q", what, w, h, n, l)
		}
	}
}

// TestASCII: with --ascii the frame has no other characters; names keep theirs.
func TestASCII(t *testing.T) {
	for _, keys := range [][]string{nil, {"3"}, {"4"}, {"enter"}, {"?"}, {"d"}} {
		m := screenOf(t, newWorld(3), "none", true, 200, 50)
		m.press(keys...)
		for _, r := range m.View() {
			if r >= 0x80 || r < ' ' && r != '\n' {
				t.Fatalf("keys %q: %q in\n%s", keys, r, m.View())
			}
		}
	}
}

// TestColumnsStand: whatever the names are made of, what follows them stands below its
// title.
func TestColumnsStand(t *testing.T) {
	m := screenOf(t, newWorld(12), "none", false, 120, 40)
	m.press("2")
	lines := strings.Split(m.View(), "\n")
	column := -1
	seen := 0
	for _, l := range lines {
		if before, _, is := strings.Cut(l, "STATE"); is {
			column = lipgloss.Width(before)
		}
		for _, symbol := range []string{"» moving", "- degraded", "✗ no-owner"} {
			if i := strings.Index(l, symbol); i >= 0 && column >= 0 {
				seen++
				if at := lipgloss.Width(l[:i]); at != column {
					t.Errorf("the state is at %d instead of %d: %q", at, column, l)
				}
			}
		}
	}
	if seen != 12 {
		t.Errorf("%d of 12 tables are seen:\n%s", seen, m.View())
	}
	for _, bad := range []string{"\x1b", "\x07", "\u202e"} {
		if strings.Contains(m.View(), bad) {
			t.Errorf("%q reaches the terminal", bad)
		}
	}
	if !strings.Contains(m.View(), `evil\x1b[2J`) {
		t.Error("the name with an escape sequence is not to be recognised")
	}
}

// TestSelectedRowIsSeen also without colours, and without any attribute.
func TestSelectedRowIsSeen(t *testing.T) {
	for _, theme := range []string{"dark", "light", "colour-blind", "mono", "none"} {
		m := screenOf(t, newWorld(3), theme, true, 80, 24)
		m.press("j")
		marked := 0
		for l := range strings.Lines(m.View()) {
			if strings.Contains(l, "> ") && strings.Contains(l, "draining") && strings.Contains(l, "b") {
				marked++
			}
		}
		if marked == 0 {
			t.Errorf("%s: no row is marked:\n%s", theme, m.View())
		}
	}
}
