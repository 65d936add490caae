package proctest_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// load is clients that ask at fixed times, whether or not they were answered: what
// is slow to come is not asked for more seldom. Each request is of its own goroutine.
type load struct {
	fleet  *fleet
	tables []string
	via    []int // targets
	rate   int   // requests a second in all
	reads  bool  // every fourth request is a read of seedKey

	stopped chan struct{}
	wg      sync.WaitGroup
	mu      struct {
		sync.Mutex
		writes []write
		reads  []write
	}
}

// seedKey is a row of every table that reads ask for.
const seedKey = "seed"

// openLoad starts a load.
func openLoad(t *testing.T, c *cluster, l *load) *load {
	t.Helper()
	targets := c.targets()
	l.fleet, l.stopped = &fleet{targets: targets, began: time.Now()}, make(chan struct{})
	for _, tg := range targets {
		tr := transport(tg.tls)
		// What a busy machine cannot take at once waits here, and not in a storm of
		// new connections; it counts as asked for all the same.
		tr.MaxConnsPerHost = 128
		l.fleet.rows = append(l.fleet.rows, tr)
	}
	l.wg.Go(l.run)
	t.Cleanup(l.stop)
	return l
}

// run sends what is due, a little at a time.
func (l *load) run() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for sent := 0; ; {
		due := int(time.Since(l.fleet.began) * time.Duration(l.rate) / time.Second)
		for n := sent; n < due; n++ {
			l.wg.Go(func() { l.ask(n) })
		}
		sent = due
		select {
		case <-tick.C:
		case <-l.stopped:
			return
		}
	}
}

// ask sends the request numbered n.
func (l *load) ask(n int) {
	// The table and the node turn at different paces, so that each table is asked
	// for through each node.
	i := l.via[n/len(l.tables)%len(l.via)]
	w := writer{f: l.fleet, id: n}
	r := write{table: l.tables[n%len(l.tables)], key: w.key(0), node: l.fleet.targets[i].name}
	read := l.reads && n/len(l.tables)%4 == 0
	r.at = time.Since(l.fleet.began)
	if read {
		r.key = seedKey
		r.outcome, r.why = l.read(i, r.table)
	} else {
		w.send(i, &r)
	}
	r.took = time.Since(l.fleet.began) - r.at
	l.mu.Lock()
	defer l.mu.Unlock()
	if read {
		l.mu.reads = append(l.mu.reads, r)
	} else {
		l.mu.writes = append(l.mu.writes, r)
	}
}

// read asks for a row that is there.
func (l *load) read(i int, table string) (outcome, string) {
	client := &http.Client{Transport: l.fleet.rows[i], Timeout: 20 * time.Second}
	s, err := get(client, l.fleet.targets[i].base+"/v1/tables/"+table+"/rows/"+seedKey)
	switch {
	case err != nil:
		return refused, plainText(err.Error())
	case !s.found || !bytes.Equal(s.value, rowValue(table, seedKey)):
		return refused, fmt.Sprintf("read %q", s.value)
	}
	return acked, ""
}

// stop ends the load after its answers; calling it twice is fine.
func (l *load) stop() {
	select {
	case <-l.stopped:
		return
	default:
	}
	close(l.stopped)
	l.wg.Wait()
	for _, tr := range l.fleet.rows {
		tr.CloseIdleConnections()
	}
}

// now is the time of the load's own clock.
func (l *load) now() time.Duration { return time.Since(l.fleet.began) }

// gap returns the longest time that passed between two acknowledgements of a
// table, of those that ended between two times, and of which table it was.
func (l *load) gap(from, to time.Duration) (worst time.Duration, table string) {
	for _, name := range l.tables {
		ends := []time.Duration{from, to}
		for _, w := range l.mu.writes {
			if end := w.at + w.took; w.table == name && w.outcome == acked && end > from && end < to {
				ends = append(ends, end)
			}
		}
		slices.Sort(ends)
		for i := range ends[1:] {
			if d := ends[i+1] - ends[i]; d > worst {
				worst, table = d, name
			}
		}
	}
	return worst, table
}
