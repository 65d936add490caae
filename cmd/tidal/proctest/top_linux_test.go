package proctest_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tidal/node/api"
)

// terminal is a real one, of a size, of which the test is the screen and the keyboard.
// It answers no question that a program asks it.
type terminal struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd
	before unix.Termios
	mu     sync.Mutex
	shown  bytes.Buffer
	marks  []mark
}

// mark is when the screen had been written so far.
type mark struct {
	at  time.Time
	end int
}

// openTerminal runs a command line on a new terminal.
func openTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	x := newTerminal(t)
	x.run(env, nil, args...)
	return x
}

// newTerminal returns a terminal of 120 by 40.
func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: 120, Row: 40})
	}
	if err != nil {
		t.Skipf("terminals cannot be set up here: %v", err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("terminals cannot be opened here: %v", err)
	}
	x := &terminal{t: t, master: master, slave: slave, before: termios(t, slave)}
	t.Cleanup(func() {
		_ = x.slave.Close()
		_ = x.master.Close()
	})
	return x
}

// run starts a command line on the terminal, with more open files.
func (x *terminal) run(env []string, files []*os.File, args ...string) {
	x.t.Helper()
	x.cmd = exec.Command(args[0], args[1:]...)
	x.cmd.ExtraFiles = files
	// Where CI is set, nothing is taken for a terminal.
	noCI := slices.DeleteFunc(cleanEnv(), func(kv string) bool { return strings.HasPrefix(kv, "CI=") })
	x.cmd.Env = append(append(noCI, "TERM=xterm-256color", "LANG=C.UTF-8"), env...)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = x.slave, x.slave, x.slave
	x.cmd.SysProcAttr = dieWithUs()
	x.cmd.SysProcAttr.Setsid, x.cmd.SysProcAttr.Setctty = true, true
	if err := x.cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = x.cmd.Process.Kill() })
	go func() { // ends when the terminal is closed
		b := make([]byte, 64<<10)
		for {
			n, err := x.master.Read(b)
			x.mu.Lock()
			x.shown.Write(b[:n])
			x.marks = append(x.marks, mark{time.Now(), x.shown.Len()})
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

func termios(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]`)

// text is what was written to the terminal since some number of bytes, without what
// moves and colours.
func (x *terminal) text(since int) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return escapes.ReplaceAllString(string(x.shown.Bytes()[since:]), "")
}

func (x *terminal) written() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.Len()
}

// seenAt returns when something that is on the screen got there.
func (x *terminal) seenAt(since int, what string) time.Time {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(len(x.marks), func(i int) bool {
		end := max(x.marks[i].end, since)
		return strings.Contains(escapes.ReplaceAllString(string(x.shown.Bytes()[since:end]), ""), what)
	})
	if i == len(x.marks) {
		x.t.Fatalf("%q is not on the screen", what)
	}
	return x.marks[i].at
}

func (x *terminal) keys(text string) {
	x.t.Helper()
	if _, err := x.master.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// sees waits until something is on the screen, and returns how long that took.
func (x *terminal) sees(since int, patience time.Duration, what string) time.Duration {
	x.t.Helper()
	begun := time.Now()
	for !strings.Contains(x.text(since), what) {
		if time.Since(begun) > patience {
			text := x.text(since)
			x.t.Fatalf("%q is not on the screen within %v:\n%s", what, patience, text[max(0, len(text)-4000):])
		}
		pause(20 * time.Millisecond)
	}
	return time.Since(begun)
}

// topArgs is a command line of tidal top for a cluster.
func (c *cluster) topArgs(t *testing.T, more ...string) []string {
	t.Helper()
	return append(c.asAdmin(binary(t), "top"), more...)
}

// soon is how much later than the cluster a screen may know something. Where others
// use the machine too, nobody can promise that.
func soon() time.Duration {
	if os.Getenv("TIDAL_TOP") == "" {
		return 3 * time.Second
	}
	return time.Second
}

// witness is what a node says while a test looks at a screen.
type witness struct {
	mu    sync.Mutex
	first map[string]time.Time
	stop  chan struct{}
	done  sync.WaitGroup
}

// watch notes when each of some conditions first holds, as a node says.
func (c *cluster) watch(i int, conditions map[string]func(*api.Status) bool) *witness {
	w := &witness{first: map[string]time.Time{}, stop: make(chan struct{})}
	w.done.Go(func() {
		for tick := time.NewTicker(25 * time.Millisecond); ; {
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
			var s api.Status
			if a, err := c.call(i, http.MethodGet, "/cluster/status", "", nil); err != nil || json.Unmarshal(a.body, &s) != nil {
				continue
			}
			w.mu.Lock()
			for name, holds := range conditions {
				if w.first[name].IsZero() && holds(&s) {
					w.first[name] = time.Now()
				}
			}
			w.mu.Unlock()
		}
	})
	return w
}

// saw holds the screen to what the node said, and returns how much later it was.
func (w *witness) saw(x *terminal, since int, name, what string) time.Duration {
	x.t.Helper()
	x.sees(since, 10*time.Second, what)
	w.mu.Lock()
	first := w.first[name]
	w.mu.Unlock()
	later := time.Duration(0)
	if seen := x.seenAt(since, what); !first.IsZero() {
		later = seen.Sub(first)
	}
	if later > soon() {
		x.t.Errorf("%q is on the screen %v after it was so", what, later)
	}
	return later
}

func (w *witness) end() {
	close(w.stop)
	w.done.Wait()
}

// leaseless reports whether a node has no lease.
func leaseless(node string) func(*api.Status) bool {
	return func(s *api.Status) bool {
		return slices.ContainsFunc(s.Members, func(m api.Member) bool { return m.Node == node && !m.Live })
	}
}

// roomy skips a test whose screen is to say that all is well where the disk is nearly full:
// there it is not.
func roomy(t *testing.T) {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &s); err != nil {
		t.Fatal(err)
	}
	if free := 100 * s.Bavail / s.Blocks; free < 10 {
		t.Skipf("needs a tenth of the disk to be free, which has %d %%: the screen warns of that", free)
	}
}

// TestTop watches a real cluster on a real terminal: a table is handed over and a node
// drained from there, one is frozen and one killed, one is rolled, and all of them go
// and come.
func TestTop(t *testing.T) {
	roomy(t)
	c := newCluster(t, clusterOptions{nodes: 5})
	c.startAll(t)
	c.createTables(t, 15)
	x := openTerminal(t, nil, c.topArgs(t)...)
	x.sees(0, 10*time.Second, "all well")
	x.sees(0, 10*time.Second, "nodes 5/5")

	since := x.written()
	x.keys("2j") // what is typed early is not lost
	x.sees(since, 5*time.Second, "REPLICAS")
	x.keys("o")
	x.sees(since, 5*time.Second, "hand over table t1")
	x.keys("\ty")
	t.Logf("handed over after %v", x.sees(since, 5*time.Second, "table t1 is owned by"))

	x.keys("1g")
	c.drainFrom(t, x)
	c.loseTwo(t, x)
	c.rollUnder(t, x)

	for _, n := range c.nodes {
		n.kill()
	}
	since = x.written()
	x.sees(since, 5*time.Second, "NO ANSWER")
	if away, err := time.ParseDuration(os.Getenv("TIDAL_TOP")); err == nil {
		pause(away)
	}
	since = x.written()
	begun := time.Now()
	c.startAll(t)
	x.sees(since, 20*time.Second, "all well")
	t.Logf("after all nodes were away it is well again %v after they were started", x.seenAt(since, "all well").Sub(begun))
	x.keys("\x03")
	x.ends(130)
}

// drainFrom drains the first node from the screen, and undrains it.
func (c *cluster) drainFrom(t *testing.T, x *terminal) {
	t.Helper()
	w := c.watch(1, map[string]func(*api.Status) bool{"drains": func(s *api.Status) bool {
		return slices.ContainsFunc(s.Members, func(m api.Member) bool { return m.Node == "n1" && m.Lease != nil && m.Lease.Draining })
	}})
	defer w.end()
	since := x.written()
	x.keys("d")
	x.sees(since, 5*time.Second, "drain node n1")
	x.keys("n1\r")
	t.Logf("drains on the screen %v after the cluster", w.saw(x, since, "drains", "node n1 drains: claimed by"))
	x.keys("u")
	x.sees(since, 5*time.Second, "undrain node n1")
	since = x.written()
	x.keys("y")
	x.sees(since, 5*time.Second, "node n1 takes tables again")
	x.sees(since, 5*time.Second, "all well")
}

// loseTwo freezes a node and kills another, looks at their tables, and has both back.
func (c *cluster) loseTwo(t *testing.T, x *terminal) {
	t.Helper()
	stay := []string{"n1", "n2", "n3"}
	since := x.written()
	x.keys("2/!owner=n1 !owner=n2 !owner=n3\r")
	x.sees(since, 5*time.Second, "filter !owner=n1 !owner=n2 !owner=n3")
	w := c.watch(0, map[string]func(*api.Status) bool{
		"n4 down": leaseless("n4"), "n5 down": leaseless("n5"),
		"moved": func(s *api.Status) bool {
			return !slices.ContainsFunc(s.Tables, func(t api.Table) bool { return !slices.Contains(stay, t.Owner) })
		},
	})
	defer w.end()
	since = x.written()
	begun := time.Now()
	if err := c.nodes[3].signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.nodes[4].kill()
	for _, node := range []string{"n4", "n5"} {
		x.sees(since, 5*time.Second, "node "+node+" stale")
		if took := x.seenAt(since, "node "+node+" stale").Sub(begun); took > soon() {
			t.Errorf("node %s is stale on the screen after %v", node, took)
		}
	}
	stale := time.Since(begun)
	moved := w.saw(x, since, "moved", "no table matches the filter")
	frozen := w.saw(x, since, "n4 down", "node n4 down")
	killed := w.saw(x, since, "n5 down", "node n5 down")
	t.Logf("both are stale after %v; their tables have owners on the screen %v after the cluster, and they are down %v and %v after it", stale, moved, frozen, killed)
	since = x.written()
	begun = time.Now()
	if err := c.nodes[3].signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.nodes[4].start(t, c.o.faults)
	x.sees(since, 10*time.Second, "all well")
	t.Logf("both are well again after %v", time.Since(begun))
	x.keys("\x7f")
}

// rollUnder rolls a node while the screen shows the rolls.
func (c *cluster) rollUnder(t *testing.T, x *terminal) {
	t.Helper()
	since := x.written()
	x.keys("4")
	x.sees(since, 5*time.Second, "nothing has been rolled yet")
	cmd := c.rollCmd(t, "--only", "n2", "--settle", "0s", "--yes")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x.sees(since, 10*time.Second, "ROLL 1, NODE BY NODE")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the roll: %v", err)
	}
	ended := time.Now()
	x.sees(since, 10*time.Second, "done")
	t.Logf("the roll is done on the screen %v after it was", time.Since(ended))
	since = x.written()
	x.keys("1")
	x.sees(since, 5*time.Second, "LEASE") // what stays as it was is not written again
}

// TestTopRolls starts, pauses and resumes a roll from the screen, and leaves it.
func TestTopRolls(t *testing.T) {
	onDemand(t, "TIDAL_TOP", "top")
	roomy(t)
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	c.createTables(t, 6)
	x := openTerminal(t, nil, c.topArgs(t)...)
	x.sees(0, 10*time.Second, "all well")
	since := x.written()
	x.keys("4")
	x.sees(since, 5*time.Second, "nothing has been rolled yet")
	x.keys("R")
	x.sees(since, 10*time.Second, "roll cluster test")
	x.keys("test\r")
	x.sees(since, 10*time.Second, "roll 1 has begun")
	x.sees(since, 10*time.Second, "from here: node ")
	since = x.written()
	x.keys("R")
	x.sees(since, 5*time.Second, "pause roll 1")
	x.keys("y")
	x.sees(since, 60*time.Second, "paused")
	x.sees(since, 60*time.Second, "R resume")
	since = x.written()
	x.keys("R")
	x.sees(since, 5*time.Second, "resume roll 1")
	x.keys("1\r")
	x.sees(since, 10*time.Second, "roll 1 goes on")
	x.sees(since, 10*time.Second, "from here: node ")
	x.keys("q")
	x.sees(since, 5*time.Second, "roll 1 is carried out from here")
	since = x.written()
	x.keys("y")
	x.sees(since, 60*time.Second, "roll 1 is paused")
	x.ends(8)
	if out := c.roll(t, "resume"); out.code != 0 || c.health(0) != nil {
		t.Errorf("resumed with the command: %d\n%s", out.code, out)
	}
}

// TestOnlyTopTouchesTheTerminal: other commands write nothing but their own words to a
// terminal, and wait for no answer of one that gives none.
func TestOnlyTopTouchesTheTerminal(t *testing.T) {
	begun := time.Now()
	x := openTerminal(t, nil, binary(t), "version")
	x.ends(0)
	x.sees(0, 5*time.Second, "\n")
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if shown := x.shown.String(); strings.Contains(shown, "\x1b") {
		t.Errorf("it wrote %q", shown)
	}
}
