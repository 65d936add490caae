package tui

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "github.com/charmbracelet/bubbletea"
)

// inTmux names what the program shows that TestTmuxScreens runs in tmux.
const inTmux = "TIDAL_TUI_IN_TMUX"

// TestTmuxScreens compares what tmux shows, cell by cell, with the golden screens: so
// they have gone through bubbletea, a pseudo terminal and a terminal that somebody else
// has written. All of them with TIDAL_TMUX=1, a part of them without.
func TestTmuxScreens(t *testing.T) {
	t.Parallel()
	if os.Getenv(inTmux) != "" {
		showInTmux(t)
		return
	}
	if testing.Short() {
		t.Skip("starts processes: not with -short")
	}
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("needs tmux, which is not installed")
	}
	x := startTmux(t)
	for look := range goldenLooks() {
		t.Run(look, func(t *testing.T) {
			t.Parallel()
			p := x.open(t, look)
			size := [2]int{80, 24}
			expect := func(keys []string) string {
				l := goldenLooks()[look]
				m := screenOf(t, newWorld(40), l.theme, l.ascii, size[0], size[1])
				m.o.Roller = &roller{}
				m.press(keys...)
				return m.View()
			}
			p.shows("at first", expect(nil)) // from then on it heeds a new size
			for n, now := range goldenSizes() {
				size = now
				p.size(size[0], size[1])
				p.shows(fmt.Sprintf("resized to %dx%d", size[0], size[1]), expect(nil))
				for k, view := range slices.Sorted(maps.Keys(goldenViews())) {
					if os.Getenv("TIDAL_TMUX") == "" && (k+2*n)%len(goldenViews()) > 1 {
						continue
					}
					keys := goldenViews()[view]
					what := fmt.Sprintf("%s at %dx%d", view, size[0], size[1])
					p.key("f12")
					p.shows(what, expect(nil))
					for i, key := range keys { // those that come together find no answer yet
						p.key(key)
						p.shows(what, expect(keys[:i+1]))
					}
				}
			}
		})
	}
}

// showInTmux is the program: a model of the golden screens' world, in which F12 begins
// anew.
func showInTmux(t *testing.T) {
	t.Helper()
	l := goldenLooks()[os.Getenv(inTmux)]
	fresh := func(w, h int) *model {
		m := screenOf(t, newWorld(40), l.theme, l.ascii, w, h)
		m.o.Roller = &roller{}
		return m
	}
	if _, err := tea.NewProgram(&shown{model: fresh(80, 24), fresh: fresh}, tea.WithAltScreen(), tea.WithFPS(60)).Run(); err != nil {
		t.Fatal(err)
	}
}

// shown is a model whose world stands still.
type shown struct {
	*model

	fresh func(w, h int) *model
}

func (s *shown) Init() tea.Cmd { return nil }

func (s *shown) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyMsg:
		if msg.Type == tea.KeyF12 {
			s.model = s.fresh(s.w, s.h)
			return s, nil
		}
	case tea.WindowSizeMsg:
		s.model = s.fresh(msg.Width, msg.Height)
		return s, nil
	}
	_, cmd := s.model.Update(msg)
	s.settled()
	return s, cmd
}

// tmux is a server of its own.
type tmux struct {
	socket string
	conf   string
}

// pane is a terminal in it, in which a program runs.
type pane struct {
	t *testing.T
	x *tmux

	name string
}

func startTmux(t *testing.T) *tmux {
	t.Helper()
	dir := t.TempDir()
	x := &tmux{socket: filepath.Join(dir, "s"), conf: filepath.Join(dir, "c")}
	if err := os.WriteFile(x.conf, []byte("set -g status off\nset -g default-terminal screen-256color\nset -sg escape-time 0\nset -g exit-empty off\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.command(t, "kill-server").Run() }) // it may have ended with its panes
	return x
}

func (x *tmux) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("tmux", append([]string{"-u", "-S", x.socket, "-f", x.conf}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TMUX=")
	return cmd
}

// open runs the program in a look.
func (x *tmux) open(t *testing.T, look string) *pane {
	t.Helper()
	p := &pane{t: t, x: x, name: look}
	p.do("new-session", "-d", "-s", look, "-x", "80", "-y", "24", "-e", inTmux+"="+look, os.Args[0], "-test.run=^TestTmuxScreens$")
	return p
}

func (p *pane) do(args ...string) string {
	p.t.Helper()
	out, err := p.x.command(p.t, args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (p *pane) size(w, h int) {
	p.t.Helper()
	p.do("resize-window", "-t", p.name, "-x", strconv.Itoa(w), "-y", strconv.Itoa(h))
}

func (p *pane) key(k string) {
	p.t.Helper()
	if name, special := map[string]string{"enter": "Enter", "tab": "Tab", "f12": "F12"}[k]; special {
		k = name
	}
	p.do("send-keys", "-t", p.name, k)
}

// shows waits until the terminal shows a screen.
func (p *pane) shows(what, want string) {
	p.t.Helper()
	var got string
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(20 * time.Millisecond) {
		got = p.do("capture-pane", "-p", "-e", "-N", "-t", p.name)
		diff := differ(cellsOf(want), cellsOf(got))
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %s; the terminal shows\n%s", what, diff, got)
		}
	}
}

// differ says where two screens differ, "" if they show the same.
func differ(want, got []string) string {
	for i := range max(len(want), len(got)) {
		var a, b string
		if i < len(want) {
			a = want[i]
		}
		if i < len(got) {
			b = got[i]
		}
		family := strings.Contains(a, "-family") && strings.Contains(b, "-family") // tmux takes 21 bytes of a character
		if a != b && !family {
			return fmt.Sprintf("line %d is\n%s\nand should be\n%s", i+1, b, a)
		}
	}
	return ""
}

// cellsOf writes the lines of a screen as their characters, each time with how it is
// painted when that changes. How blanks are painted counts only if it can be seen.
func cellsOf(screen string) []string {
	var out []string
	var now attributes // from line to line, as tmux writes it
	for line := range strings.SplitSeq(screen, "\n") {
		var b strings.Builder
		var last attributes
		for len(line) > 0 {
			if rest, ok := strings.CutPrefix(line, "\x1b["); ok {
				sgr, after, _ := strings.Cut(rest, "m")
				now.set(sgr)
				line = after
				continue
			}
			r, n := utf8.DecodeRuneInString(line)
			line = line[n:]
			seen := now
			if r == ' ' {
				seen = attributes{bg: now.bg, reverse: now.reverse}
			}
			if seen != last {
				fmt.Fprintf(&b, "‹%s›", &seen)
				last = seen
			}
			b.WriteRune(r)
		}
		text := strings.TrimRight(b.String(), " ")
		out = append(out, strings.TrimRight(strings.TrimSuffix(text, "‹›"), " "))
	}
	return out
}

// attributes are how a character is painted.
type attributes struct {
	fg, bg               string
	bold, faint, reverse bool
}

func (a *attributes) String() string {
	s := a.fg
	for _, x := range []struct {
		on   bool
		text string
	}{{a.bg != "", " on " + a.bg}, {a.bold, " bold"}, {a.faint, " faint"}, {a.reverse, " reverse"}} {
		if x.on {
			s += x.text
		}
	}
	return s
}

func (a *attributes) set(sgr string) {
	n := strings.Split(sgr, ";")
	for i := 0; i < len(n); i++ {
		switch n[i] {
		case "", "0":
			*a = attributes{}
		case "1":
			a.bold = true
		case "2":
			a.faint = true
		case "7":
			a.reverse = true
		case "39":
			a.fg = ""
		case "49":
			a.bg = ""
		case "38", "48":
			if i+2 < len(n) {
				if n[i] == "38" {
					a.fg = n[i+2]
				} else {
					a.bg = n[i+2]
				}
			}
			i += 2
		}
	}
}

// TestCellsOf: what can be seen counts, and nothing else.
func TestCellsOf(t *testing.T) {
	for _, same := range [][2]string{
		{"\x1b[1;38;5;81mab\x1b[0m  ", "\x1b[1m\x1b[38;5;81mab"},
		{"\x1b[38;5;81ma b\x1b[0m", "\x1b[38;5;81ma\x1b[39m \x1b[38;5;81mb\x1b[39m"},
		{"x\x1b[7m  \x1b[0m", "x\x1b[7m  "},
	} {
		if diff := differ(cellsOf(same[0]), cellsOf(same[1])); diff != "" {
			t.Errorf("%q and %q: %s", same[0], same[1], diff)
		}
	}
	for _, other := range [][2]string{
		{"\x1b[1mab", "ab"}, {"ab", "ac"}, {"\x1b[38;5;81mab", "\x1b[38;5;82mab"}, {"a\x1b[7m  ", "a"}, {"a\x1b[48;5;238m b", "a b"}, {" a", "a"}, {"a\nb", "a"},
	} {
		if differ(cellsOf(other[0]), cellsOf(other[1])) == "" {
			t.Errorf("%q and %q are the same", other[0], other[1])
		}
	}
}
