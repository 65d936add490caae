package proctest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"tidal/node/api"
)

// What a run of the nemesis demands.
const (
	nemesisNodes  = 5
	nemesisTables = 4
	nemesisFaults = 10                     // in a run, of at least
	nemesisFull   = time.Minute            // a run that is so long has at least
	nemesisActs   = 20_000                 // so many requests that were answered
	judgeFor      = 30 * time.Second       // the history of one row
	excuseFor     = 2 * time.Second        // for a node to end of a disk that is well again
	lullMin       = 200 * time.Millisecond // between two faults of one kind
	lullMax       = 1500 * time.Millisecond
)

// TestNemesis breaks everything at once, at random: processes, networks, disks,
// owners, while clients read and write the same rows. The history of each row must
// be one that a single copy could have. NEMESIS_RUNS is how often, NEMESIS_FOR how
// long. Without root there are no namespaces and no file systems to break.
func TestNemesis(t *testing.T) {
	for i := range runs(t, "NEMESIS_RUNS", 0) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			k := newNemesis(t, "")
			k.run(t, k.kinds(), nemesisFor(t))
			k.demand(t)
		})
	}
}

// TestControlStaleReads has owners answer reads without asking whether they still
// own the table, and cuts them off.
func TestControlStaleReads(t *testing.T) {
	controlNemesis(t, "stale-reads", func(k *nemesis) [][]fault {
		return [][]fault{{k.freeze()}, k.partitions()[:1]}
	})
}

// TestControlAckBeforeSync has nodes acknowledge what their disks do not have yet,
// and cuts the power of all.
func TestControlAckBeforeSync(t *testing.T) {
	needRoot(t)
	controlNemesis(t, "ack-before-sync", func(k *nemesis) [][]fault {
		return [][]fault{{k.powerCut(nemesisNodes)}}
	})
}

// controlNemesis breaks the nodes on purpose: each time the history must show it.
func controlNemesis(t *testing.T, faults string, kinds func(*nemesis) [][]fault) {
	t.Helper()
	for i := range runs(t, "TIDAL_CONTROLS", 0) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			k := newNemesis(t, faults)
			k.run(t, kinds(k), nemesisFor(t)/2)
			wrong := k.judge(t)
			t.Logf("%s%s", k.report(), strings.Join(wrong, "\n"))
			if len(wrong) == 0 {
				t.Errorf("with %s nothing was noticed: the nemesis cannot find it", faults)
			}
		})
	}
}

func nemesisFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("NEMESIS_FOR")
	if text == "" {
		return nemesisFull
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("NEMESIS_FOR=%q: want a duration as in 60s", text)
	}
	return d
}

// nemesis is a cluster with clients on it, and what is done to it.
type nemesis struct {
	*cluster
	t      *testing.T
	tables []api.Table
	crowd  *crowd
	long   time.Duration

	busy    []bool         // nodes that a fault has to itself now
	excused []time.Time    // when a node's disk was well again: it may end with 3 shortly after
	count   map[string]int // faults
	asides  sync.WaitGroup // calls that nobody waits for
	mu      struct {
		sync.Mutex
		problems []string
	}
}

// problem notes an error.
func (k *nemesis) problem(err error) {
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.mu.problems = append(k.mu.problems, err.Error())
	}
}

func newNemesis(t *testing.T, faults string) *nemesis {
	t.Helper()
	apart := os.Geteuid() == 0
	k := &nemesis{t: t, cluster: newCluster(t, clusterOptions{nodes: nemesisNodes, apart: apart, faults: faults})}
	if apart {
		need(t, "mkfs.ext4", "fsfreeze", "mount", "umount", "strace")
		for _, n := range k.nodes {
			k.mountDisk(t, n)
		}
	}
	k.busy, k.excused, k.count = make([]bool, nemesisNodes), make([]time.Time, nemesisNodes), map[string]int{}
	k.startAll(t)
	for _, name := range k.createTablesOf(t, nemesisTables, 3) {
		k.tables = append(k.tables, k.table(t, 0, name))
	}
	return k
}

// lane is faults of one kind, of which there is one at a time.
type lane struct {
	faults []fault
	next   int // in faults
	at     time.Time
	who    []int
	end    func()
}

// run lets the lanes loose on the cluster for so long, and then waits until it is
// well again and reads every row.
func (k *nemesis) run(t *testing.T, kinds [][]fault, long time.Duration) {
	t.Helper()
	k.long = long
	k.crowd = gather(t, k.targets(), k.tables)
	var lanes []*lane
	for _, faults := range kinds {
		lanes = append(lanes, &lane{faults: faults, at: time.Now().Add(time.Second)})
	}
	for began := time.Now(); time.Since(began) < long; pause(20 * time.Millisecond) {
		for _, l := range lanes {
			if time.Now().After(l.at) {
				k.turn(l)
			}
		}
		k.look()
	}
	for _, l := range lanes {
		if l.end != nil {
			k.turn(l)
		}
	}
	k.asides.Wait()
	k.look()
	k.problem(poll(time.Minute, func() error {
		for i := range k.nodes {
			if err := k.health(i); err != nil {
				return err
			}
		}
		return nil
	}))
	k.crowd.stop()
	for _, why := range k.crowd.final() {
		k.problem(errors.New(why))
	}
	k.compare()
}

// turn ends the fault of a lane, or begins its next one.
func (k *nemesis) turn(l *lane) {
	if l.end != nil {
		l.end()
		for _, i := range l.who {
			k.busy[i] = false
		}
		l.end, l.at = nil, time.Now().Add(lullMin+rand.N(lullMax-lullMin))
		return
	}
	if l.next == 0 {
		rand.Shuffle(len(l.faults), func(i, j int) { l.faults[i], l.faults[j] = l.faults[j], l.faults[i] })
	}
	f := l.faults[l.next]
	idle := slices.DeleteFunc(rand.Perm(len(k.nodes)), func(i int) bool { return k.busy[i] })
	if len(idle) < f.nodes {
		l.at = time.Now().Add(lullMin)
		return
	}
	l.next = (l.next + 1) % len(l.faults)
	l.who = idle[:f.nodes]
	for _, i := range l.who {
		k.busy[i] = true
	}
	k.count[f.name]++
	l.end = f.begin(l.who)
	l.at = time.Now().Add(f.long/4 + rand.N(f.long*3/4))
}

// look starts nodes that have ended by themselves, and finds out whether they may.
func (k *nemesis) look() {
	for i, n := range k.nodes {
		if k.busy[i] || n.running() {
			continue
		}
		code := n.cmd.ProcessState.ExitCode()
		slow := strings.Contains(n.tail(5), "closing took too long for a restart in place")
		if disk := code == 3 && time.Since(k.excused[i]) < excuseFor; !disk && !slow {
			k.problem(fmt.Errorf("%s ended by itself: %s\n%s", n.id, n.cmd.ProcessState, n.tail(30)))
		}
		n.start(k.t, k.o.faults)
	}
}

// compare demands that the replicas of every table are the same, byte for byte.
func (k *nemesis) compare() {
	for _, table := range k.tables {
		k.problem(poll(30*time.Second, func() error {
			a, err := k.call(0, http.MethodPost, "/v1/tables/"+table.Name+"/check", "", nil)
			if err != nil {
				return err
			}
			if same := strings.Count(string(a.body), `"state":"same"`); a.status != http.StatusOK || same < 3 || same != strings.Count(string(a.body), `"state":`) {
				return fmt.Errorf("the replicas of %s: %s", table.Name, a)
			}
			return nil
		}))
	}
}

// judge checks the histories, and keeps what is wrong as files.
func (k *nemesis) judge(t *testing.T) (wrong []string) {
	t.Helper()
	rows := k.crowd.rows()
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		verdict := judgeRow(rows[key], judgeFor)
		if verdict == porcupine.Ok {
			continue
		}
		file := filepath.Join(k.dir, strings.ReplaceAll(key, "/", "-"))
		wrong = append(wrong, fmt.Sprintf("%s: %s: %d requests, in %s.html and .txt", key, verdict, len(rows[key]), file))
		var text strings.Builder
		slices.SortFunc(rows[key], func(a, b act) int { return int(a.began - b.began) })
		for _, a := range rows[key] {
			fmt.Fprintf(&text, "%12v %12v client %d: %v: %v %s\n", a.began, a.ended, a.client, a.asked, a.told, a.why)
		}
		if err := errors.Join(os.WriteFile(file+".txt", []byte(text.String()), 0o600), drawRow(rows[key], file+".html")); err != nil {
			t.Error(err)
		}
	}
	return wrong
}

// demand fails the test for what is wrong, or if too little happened.
func (k *nemesis) demand(t *testing.T) {
	t.Helper()
	began := time.Now()
	wrong := k.judge(t)
	t.Logf("%s  judged in %v", k.report(), time.Since(began).Round(time.Millisecond))
	showList(t, "not as of a single copy", wrong)
	showList(t, "problems", k.mu.problems)
	faults := 0
	for _, n := range k.count {
		faults += n
	}
	if answered, _ := k.answered(); time.Duration(answered)*nemesisFull < nemesisActs*k.long || faults < nemesisFaults {
		t.Errorf("%d requests answered in %v, and %d faults: too little to prove anything", answered, k.long, faults)
	}
}

// answered counts the requests in the history that were answered, and the others.
func (k *nemesis) answered() (known, open int) {
	for _, a := range k.crowd.mu.acts {
		if a.told.known {
			known++
		} else {
			open++
		}
	}
	return known, open
}

// report is what happened, as a test prints it.
func (k *nemesis) report() string {
	var b strings.Builder
	known, open := k.answered()
	failed, took := 0, []time.Duration{0}
	for _, a := range k.crowd.mu.acts {
		if a.told.failed {
			failed++
		}
		if a.told.known {
			took = append(took, a.ended-a.began)
		}
	}
	slices.Sort(took)
	fmt.Fprintf(&b, "%d requests on %d rows answered in %v, of which %d conditions did not hold; %d writes of unknown outcome; p50 %v, p99 %v, longest %v\n",
		known, len(k.crowd.rows()), k.long, failed, open, took[len(took)/2].Round(10*time.Microsecond),
		took[len(took)*99/100].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(k.count)) {
		fmt.Fprintf(&b, "  %3d × %s\n", k.count[name], name)
	}
	whys := slices.SortedFunc(maps.Keys(k.crowd.mu.refused), func(x, y string) int { return k.crowd.mu.refused[y] - k.crowd.mu.refused[x] })
	for _, why := range whys[:min(len(whys), 12)] {
		fmt.Fprintf(&b, "  %5d not answered: %s\n", k.crowd.mu.refused[why], why)
	}
	return b.String()
}

// aside sends an order that nobody waits for, to a node drawn at random.
func (k *nemesis) aside(method, path, body string) {
	k.asides.Go(func() { _, _ = k.call(rand.IntN(len(k.nodes)), method, path, body, nil) }) // it may be away
}

// killed ends processes at once; they need not run.
func (k *nemesis) killed(who []int) {
	for _, i := range who {
		_ = k.nodes[i].cmd.Process.Signal(syscall.SIGKILL) // it may be gone
	}
	for _, i := range who {
		<-k.nodes[i].gone
	}
}

// replicas returns the nodes of a table as a node knows them, or none.
func (k *nemesis) replicas(table string) (nodes []string) {
	var told api.Table
	a, err := k.call(rand.IntN(len(k.nodes)), http.MethodGet, "/v1/tables/"+table, "", nil)
	if err != nil || json.Unmarshal(a.body, &told) != nil {
		return nil
	}
	for _, r := range told.Replicas {
		nodes = append(nodes, r.Node)
	}
	return nodes
}
