package sim

import (
	"container/heap"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/table"
)

// Shape of a run.
const (
	storm         = 3 * time.Second  // how long things go wrong at least, and requests begin
	longest       = 30 * time.Second // how long at most, while too little was acknowledged: seed 14860 needs it
	patience      = 8 * time.Second  // by when all must be at rest then
	electionTicks = 5
	tick          = 10 * time.Millisecond
	clients       = 6
	rowCount      = 4 // rows of a table

	// MinAcked is how many writes a run must acknowledge, or nothing was tested.
	MinAcked = 50
)

// Options of a run.
type Options struct {
	Seed   uint64
	Defect rafthost.Defect
	Table  table.Defect
	// Loose is a defect too: conditions are decided where a request arrives, before
	// the write goes into the log.
	Loose bool
	// Reshape has a fourth node, and replicas that move from one to another.
	Reshape bool
	Trace   io.Writer // takes a line for each thing that happens; nil: nobody reads it
}

// Report is what came of a run.
type Report struct {
	Findings []string // broken promises, in the order of their discovery
	Acked    int      // writes that clients know to be done
	Batches  int      // those among them of several rows
	Reads    int      // linearizable reads that were answered
	Scans    int      // those among them of all rows
	Resent   int      // requests that were sent again
	Leaders  int      // elections won
	Crashes  int      // nodes that crashed
	Torn     int      // those among them in the middle of a pass
	Unborn   int      // those among them while they started
	Failed   int      // conditions that did not hold, as clients were told
	Late     int      // writes that were sent again when their answer was forgotten

	Moves     int // replicas that took another's place, or took it back
	Lulls     int // groups that became quiet
	Snapshots int // that became a replica's state
	Passes    int
	End       time.Duration // virtual time that the run took
	Hash      uint64        // of all that happened: equal for equal runs
}

// world is a run.
type world struct {
	o       Options
	rng     *rand.Rand
	now     time.Duration
	queue   queue
	events  uint64 // so far
	groups  []uint64
	nodes   []*node
	rosters map[uint64]*roster // of each group
	clients []*client
	faults  faults
	exact   *exact   // nil: clients ask for nothing but plain writes, and no time is lost
	batches *batches // nil: all requests are of one row
	// logCache is small in some runs, so that logs are read from the disk.
	logCache int
	// logBytes too, so that replicas need snapshots.
	logBytes int64
	healed   bool
	lull     time.Duration // until when no client begins anything
	broken   map[link]int  // how many cuts a link is under
	history  *history
	report   Report
	hash     hash.Hash64
}

// Run runs a cluster from a seed, up to its first finding. It must be called in
// a synctest bubble.
func Run(o Options) Report {
	w := &world{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), broken: map[link]int{}, hash: fnv.New64a()} //nolint:gosec // runs repeat
	w.faults = w.drawFaults()
	w.logCache = pick(w, 1<<10, 16<<10, 64<<20)
	w.logBytes = pick[int64](w, 1, 4<<10, 64<<20)
	for i := range 2 + w.rng.IntN(2) {
		w.groups = append(w.groups, uint64(i)+2)
	}
	w.history = newHistory(w.groups)
	w.exact, w.batches = newExact(w), newBatches(w)
	w.history.reshapes = o.Reshape
	names := []string{"a", "b", "c"}
	if o.Reshape {
		names = append(names, "d")
	}
	w.trace("seed %d, %d tables, %+v", o.Seed, len(w.groups), w.faults)
	for _, name := range names {
		w.nodes = append(w.nodes, &node{
			w: w, name: name, pace: w.between(tick/2, tick*2), disk: newDisk(vfs.NewCrashableMem()),
		})
	}
	w.rosters = map[uint64]*roster{}
	for _, g := range w.groups {
		w.rosters[g] = w.newRoster()
	}
	for _, n := range w.nodes {
		n.start()
	}
	for i := range clients {
		c := &client{w: w, number: i}
		w.clients = append(w.clients, c)
		w.after(w.between(0, 10*time.Millisecond), c.next)
	}
	w.unleash()
	w.exact.unleash(w)
	if o.Reshape {
		for _, g := range w.groups {
			w.shape(g)
		}
		w.every(pick(w, 60*time.Millisecond, 250*time.Millisecond), w.reshape)
	}
	w.loop()
	w.report.Acked = w.history.acknowledged()
	if w.sound() {
		w.finish()
	}
	for _, n := range w.nodes {
		if err := n.close(); err != nil && w.sound() {
			w.history.find("node %s: close: %v", n.name, err)
		}
	}
	w.report.Findings = w.history.findings
	w.report.End = w.now
	w.report.Hash = w.hash.Sum64()
	return w.report
}

func (w *world) sound() bool { return len(w.history.findings) == 0 }

// loop lets things happen until all is done and at rest.
func (w *world) loop() {
	w.after(storm, w.heal)
	for rested := false; !rested && w.sound(); {
		e, _ := heap.Pop(&w.queue).(event) // never empty: the end is in it
		w.now = e.at
		e.f()
		if w.healed {
			rested = w.rested()
		}
	}
}

// heal starts what is down. Nothing breaks any more, and no request begins.
func (w *world) heal() {
	if w.now < longest && w.history.acknowledged() < MinAcked {
		w.after(storm/10, w.heal)
		return
	}
	w.healed = true
	w.trace("heal")
	for _, n := range w.nodes {
		n.disk.disarm()
		if n.stepper == nil {
			n.start()
		}
	}
	w.after(patience, func() { w.history.find("not at rest %s after the last fault:%s", patience, w.describe()) })
}

// rested reports whether no request is under way, and all replicas have applied
// all that any has.
func (w *world) rested() bool {
	for _, c := range w.clients {
		if c.op != nil {
			return false
		}
	}
	return !slices.ContainsFunc(w.groups, func(g uint64) bool { return !w.level(g) })
}

// level reports whether a table has a leader, the replicas that it should have, and
// all of them all of it.
func (w *world) level(group uint64) bool {
	leaders, last, r := 0, uint64(0), w.rosters[group]
	for _, n := range r.nodes {
		if n.stepper == nil {
			return false
		}
		p, _ := n.stepper.Progress(group)
		if p.Owns {
			leaders++
		}
		if p.Applied != p.Last || last > 0 && p.Last != last || !r.shaped(&p) {
			return false
		}
		last = p.Last
	}
	return leaders == 1 && r.goes == 0
}

func (w *world) describe() string {
	var b strings.Builder
	for _, n := range w.nodes {
		for _, g := range w.groups {
			if n.stepper == nil {
				fmt.Fprintf(&b, "\n%s is down", n.name)
				break
			}
			p, here := n.stepper.Progress(g)
			if !here {
				continue
			}
			fmt.Fprintf(&b, "\ngroup %d at %s: %+v", g, n.name, p)
		}
	}
	for _, c := range w.clients {
		if c.op != nil {
			fmt.Fprintf(&b, "\nclient %d waits for group %d since %s", c.number, c.op.group, c.op.began)
		}
	}
	return b.String()
}

// finish checks the tables as they are on each node at the end.
func (w *world) finish() {
	for _, n := range w.nodes {
		for _, g := range w.groups {
			if w.replica(g, n) == 0 {
				continue
			}
			if err := n.show(g); err != nil {
				w.history.find("node %s: %v", n.name, err)
			}
		}
	}
	if w.report.Acked < MinAcked {
		w.history.find("%d writes were acknowledged, less than %d: not enough happened", w.report.Acked, MinAcked)
	}
}

// show gives the history a table as it is on this node.
func (n *node) show(group uint64) error {
	id := api.TableID(group)
	sum, err := table.Hash(n.db, id)
	if err != nil {
		return err
	}
	rows, err := n.rows(group)
	if err != nil {
		return err
	}
	if err := n.readLog(group); err != nil {
		return err
	}
	p, _ := n.stepper.Progress(group)
	n.w.trace("end %s %d: %d %x", n.name, group, p.Applied, sum)
	n.conf(group, &p)
	n.w.history.rest(replicaOf{group, p.Replica}, tableAt{p.Applied, sum}, rows)
	return nil
}

// chance is true with a probability.
func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// between returns a duration in [lo, hi).
func (w *world) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)))
}

func (w *world) trace(format string, args ...any) {
	line := fmt.Appendf(nil, "%12s ", w.now)
	line = fmt.Appendf(line, format+"\n", args...)
	_, _ = w.hash.Write(line) // never fails
	if w.o.Trace != nil {
		_, _ = w.o.Trace.Write(line) // a reader that went away misses it
	}
}

// after makes f happen in a while.
func (w *world) after(wait time.Duration, f func()) {
	w.events++
	heap.Push(&w.queue, event{at: w.now + wait, number: w.events, f: f})
}

// event is something that will happen.
type event struct {
	at     time.Duration
	number uint64 // orders those of one time
	f      func()
}

// queue implements heap.Interface, with the next event first.
type queue []event

func (q *queue) Len() int { return len(*q) }

func (q *queue) Less(i, j int) bool {
	a, b := &(*q)[i], &(*q)[j]
	return a.at < b.at || a.at == b.at && a.number < b.number
}

func (q *queue) Swap(i, j int) { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	if e, ok := x.(event); ok {
		*q = append(*q, e)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
