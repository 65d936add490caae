package proctest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/client"
)

const (
	countersLast  = 4500 * time.Millisecond
	countersTable = 2
)

// TestCounters adds 1 to counters through connections that break after the request
// was sent, between clients and nodes and between nodes, while tables are handed
// over and their owners are killed. Each addition is sent again until its outcome
// is known. A counter is at the number of those that were done, never at more; a row
// has the version that its last write was told; and the replicas are the same.
func TestCounters(t *testing.T) {
	for i := range runs(t, "COUNTERS_RUNS", 1) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			k := newCounters(t, "")
			k.run(t)
			for _, p := range k.problems.list {
				t.Error(p)
			}
			if k.done.Load() < 200 || k.again.Load() < 20 || k.lost() < 20 || k.changes < 4 {
				t.Error("too little happened to prove anything")
			}
		})
	}
}

// TestControlNoRequestIDs has owners forget at once which writes they have done.
func TestControlNoRequestIDs(t *testing.T) {
	for i := range runs(t, "TIDAL_CONTROLS", 0) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			k := newCounters(t, "no-request-ids")
			k.run(t)
			t.Log(strings.Join(k.problems.list, "\n"))
			if len(k.problems.list) == 0 {
				t.Error("nothing was noticed: TestCounters cannot fail")
			}
		})
	}
}

// counters is a cluster with a door before each node that loses answers.
type counters struct {
	*cluster
	doors    []*proxy
	tables   []string
	changes  int // hand-overs and deaths
	done     atomic.Int64
	again    atomic.Int64 // requests that were sent again after a doubt
	failed   atomic.Int64 // conditions that did not hold
	counts   [countersTable]atomic.Int64
	problems struct {
		sync.Mutex
		list []string
	}
}

func newCounters(t *testing.T, faults string) *counters {
	t.Helper()
	k := &counters{cluster: newCluster(t, clusterOptions{faults: faults})}
	k.startAll(t)
	k.tables = k.createTables(t, countersTable)
	for _, n := range k.nodes {
		k.doors = append(k.doors, newProxy(t, "127.0.0.1:0", n.listen, 0))
	}
	return k
}

func (k *counters) problem(format string, args ...any) {
	k.problems.Lock()
	defer k.problems.Unlock()
	k.problems.list = append(k.problems.list, fmt.Sprintf(format, args...))
}

// lost returns how many answers were cut off.
func (k *counters) lost() (n int64) {
	for i, d := range k.doors {
		n += d.lost.Load() + k.nodes[i].proxy.lost.Load()
	}
	return n
}

// run counts until the time is over, and looks at the counters then.
func (k *counters) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), countersLast)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 2 * countersTable {
		wg.Go(func() { k.compare(ctx, i) })
		wg.Go(func() { k.plain(ctx, "keyed", i) })
		wg.Go(func() { k.plain(ctx, "made", i) })
	}
	wg.Go(func() { k.cut(ctx) })
	k.disturb(ctx, t)
	wg.Wait()
	for i, table := range k.tables {
		a := k.must(t, 0, http.MethodGet, "/v1/tables/"+table+"/rows/counter", "", nil)
		if want := strconv.FormatInt(k.counts[i].Load(), 10); string(a.body) != want {
			k.problem("the counter of %s is at %s, and %s additions were done", table, a, want)
		}
		a = k.must(t, 0, http.MethodPost, "/v1/tables/"+table+"/check", "", nil)
		if n := strings.Count(string(a.body), `"state":"same"`); a.status != http.StatusOK || n != len(k.nodes) {
			k.problem("the replicas of %s: %s", table, a)
		}
	}
	t.Logf("%d writes done, %d conditions did not hold, %d requests sent again, %d answers lost, %d owners changed",
		k.done.Load(), k.failed.Load(), k.again.Load(), k.lost(), k.changes)
}

// cut loses answers, now of a node's clients, now of its peers.
func (k *counters) cut(ctx context.Context) {
	for ctx.Err() == nil {
		i := rand.IntN(len(k.doors))
		p := k.doors[i]
		if rand.IntN(3) == 0 {
			p = k.nodes[i].proxy
		}
		p.set(proxyDeaf)
		pause(time.Duration(5+rand.IntN(20)) * time.Millisecond)
		p.set(proxyPass)
		pause(time.Duration(20+rand.IntN(60)) * time.Millisecond)
	}
}

// disturb hands the tables of one node over, and kills another, in turn.
func (k *counters) disturb(ctx context.Context, t *testing.T) {
	t.Helper()
	for round := 0; ; round++ {
		pause(600 * time.Millisecond)
		if ctx.Err() != nil {
			break
		}
		i := k.ownerOf(round % len(k.tables))
		if i < 0 {
			continue
		}
		if round%3 != 2 {
			if a, err := k.call((i+1)%len(k.nodes), http.MethodPost, "/v1/nodes/"+k.nodes[i].id+"/drain", `{"ttl":"1s"}`, nil); err == nil && a.status == http.StatusOK {
				k.changes++
			}
			continue
		}
		if err := k.nodes[i].signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-k.nodes[i].gone
		k.changes++
		k.nodes[i].start(t, k.o.faults)
	}
	k.healthy(t, 30*time.Second)
}

// ownerOf returns the node that owns a table, -1 if none of them says so now.
func (k *counters) ownerOf(table int) int {
	for i := range k.nodes {
		a, err := k.call(i, http.MethodGet, "/v1/tables/"+k.tables[table], "", nil)
		if err != nil || a.status != http.StatusOK {
			continue
		}
		for j, n := range k.nodes {
			if strings.Contains(string(a.body), `"owner":"`+n.id+`"`) {
				return j
			}
		}
	}
	return -1
}

// compare adds to a counter that others add to: by conditional writes, through the
// client that sends again by itself.
func (k *counters) compare(ctx context.Context, worker int) {
	table := worker % countersTable
	var doors []string
	for i := range k.doors {
		doors = append(doors, k.scheme()+k.doors[(i+worker)%len(k.doors)].addr())
	}
	cl, err := client.New(client.Options{Endpoints: doors, TLS: k.tls.Clone(), Timeout: 5 * time.Second})
	if err != nil {
		k.problem("%v", err)
		return
	}
	defer cl.Close()
	for n := 0; ctx.Err() == nil; n++ {
		row, err := cl.Get(context.Background(), k.tables[table], "counter", client.ReadOptions{})
		o := client.WriteOptions{IfMatch: []api.Version{row.Version}, Key: fmt.Sprintf("add-%d-%d", worker, n), Position: row.Position}
		if api.CodeOf(err) == api.CodeRowNotFound {
			o.IfMatch, o.IfAbsent = nil, true
			row.Value = []byte("0")
		} else if err != nil {
			continue // nobody can be reached
		}
		at, err := strconv.Atoi(string(row.Value))
		if err != nil {
			k.problem("the counter of %s is %q", k.tables[table], row.Value)
			return
		}
		value := []byte(strconv.Itoa(at + 1))
		_, err = cl.Put(context.Background(), k.tables[table], "counter", value, o)
		for until := time.Now().Add(30 * time.Second); err != nil && api.CodeOf(err) != api.CodePreconditionFailed; {
			if k.again.Add(1); time.Now().After(until) {
				k.problem("an addition is not decided after 30 s: %v", err)
				return
			}
			_, err = cl.Put(context.Background(), k.tables[table], "counter", value, o)
		}
		if err != nil {
			k.failed.Add(1)
			continue
		}
		k.counts[table].Add(1)
		k.done.Add(1)
	}
}

// plain adds to a counter of its own, by a write without a condition: with an
// Idempotency-Key, or with an id that the node makes, which is all there is then to
// keep what nodes send again from being done twice. The version that was told must
// stay until the next addition.
func (k *counters) plain(ctx context.Context, kind string, worker int) {
	tr := transport(k.tls)
	defer tr.CloseIdleConnections()
	hc := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	row := fmt.Sprintf("/v1/tables/%s/rows/%s-%d-", k.tables[worker%countersTable], kind, worker)
	at, life := 0, 0
	for n := 0; ctx.Err() == nil; n++ {
		path := row + strconv.Itoa(life)
		key := ""
		if kind == "keyed" {
			key = fmt.Sprintf("%s-%d-%d", kind, worker, n)
		}
		a, err := k.send(hc, http.MethodPut, path, strconv.Itoa(at+1), key)
		for until := time.Now().Add(30 * time.Second); key != "" && (err != nil || a.status != http.StatusNoContent); {
			if k.again.Add(1); time.Now().After(until) {
				k.problem("%s is not written after 30 s: %v %s", path, err, a)
				return
			}
			a, err = k.send(hc, http.MethodPut, path, strconv.Itoa(at+1), key)
		}
		if err != nil || a.status != http.StatusNoContent {
			at, life = 0, life+1 // done or not: it is no use to count on with this row
			continue
		}
		k.done.Add(1)
		version := a.header.Get("ETag")
		at++
		if rand.IntN(4) != 0 {
			continue
		}
		for until := time.Now().Add(30 * time.Second); ; {
			if a, err = k.send(hc, http.MethodGet, path, "", ""); err == nil && a.status == http.StatusOK {
				break
			}
			if time.Now().After(until) {
				k.problem("%s is not read after 30 s: %v %s", path, err, a)
				return
			}
		}
		if string(a.body) != strconv.Itoa(at) || a.header.Get("ETag") != version {
			k.problem("%s is %s with ETag %s: the last write of it was %d, and was told %s", path, a.body, a.header.Get("ETag"), at, version)
		}
	}
}

// send sends a request through a door of any node.
func (k *counters) send(hc *http.Client, method, path, body, key string) (answer, error) {
	url := k.scheme() + k.doors[rand.IntN(len(k.doors))].addr() + path
	req, err := http.NewRequestWithContext(context.Background(), method, url, oneShot{strings.NewReader(body)})
	if err != nil {
		return answer{}, err
	}
	req.ContentLength = int64(len(body))
	if key != "" {
		req.Header.Set(api.HeaderIdempotency, key)
	}
	res, err := hc.Do(req)
	if err != nil {
		return answer{}, err
	}
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, b}, errors.Join(err, res.Body.Close())
}
