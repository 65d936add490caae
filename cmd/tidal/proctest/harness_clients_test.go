package proctest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
)

// What the clients of a history do.
const (
	crowdKeys    = 8 // rows at a time
	crowdClients = 8 // on each
	// crowdLife is how long a row is used. What is unknown of it stays so to the end:
	// with more of that, nobody could check its history.
	crowdLife  = 12 * time.Second
	crowdThink = 20 * time.Millisecond // at most, between an answer and the next request
)

// crowd is clients that read and write the same few rows through nodes drawn at
// random, and never ask a second time. What they asked, and what they were told, is
// a history to be checked.
type crowd struct {
	targets []target
	clients []*http.Client
	tables  []api.Table
	began   time.Time
	stopped chan struct{}
	wg      sync.WaitGroup
	mu      struct {
		sync.Mutex
		acts    []act
		refused map[string]int
	}
}

// gather starts the clients.
func gather(t *testing.T, targets []target, tables []api.Table) *crowd {
	t.Helper()
	c := &crowd{targets: targets, tables: tables, began: time.Now(), stopped: make(chan struct{})}
	c.mu.refused = map[string]int{}
	for _, tg := range targets {
		tr := transport(tg.tls)
		t.Cleanup(tr.CloseIdleConnections)
		c.clients = append(c.clients, &http.Client{Transport: tr})
	}
	for i := range crowdKeys * crowdClients {
		c.wg.Go(func() { c.run(i) })
	}
	t.Cleanup(c.stop)
	return c
}

// stop ends the clients after their answers; calling it twice is fine.
func (c *crowd) stop() {
	select {
	case <-c.stopped:
		return
	default:
	}
	close(c.stopped)
	c.wg.Wait()
}

// key is the row of a client now.
func (c *crowd) key(client int) string {
	row := client % crowdKeys
	since := time.Since(c.began) + crowdLife*time.Duration(row)/crowdKeys // not all change at once
	return fmt.Sprintf("%s/rows/r%d-%d", c.tables[row%len(c.tables)].Name, row, since/crowdLife)
}

// tag is the entity tag of a version of a client's row.
func (c *crowd) tag(client int, version uint64) string {
	return api.ETag(api.Version{Table: c.tables[client%crowdKeys%len(c.tables)].ID, Index: version})
}

// run is one client.
func (c *crowd) run(client int) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := act{} // the last that told a version
	for n := 0; ; n++ {
		select {
		case <-timer.C:
		case <-c.stopped:
			return
		}
		key := c.key(client)
		if last.key != key {
			last = act{key: key}
		}
		a := act{client: client, key: key, asked: choose(last.told, fmt.Sprintf("%d.%d", client, n))}
		if c.ask(rand.IntN(len(c.targets)), &a); a.told.known {
			last = a
			if a.asked.kind == actDelete && !a.told.failed {
				last.told.at = 0
			}
		}
		timer.Reset(rand.N(crowdThink))
	}
}

// choose draws a request; some have the condition that the row is as it was last.
func choose(last told, value string) asked {
	a := asked{}
	switch draw := rand.IntN(100); {
	case draw < 45:
		return a
	case draw < 92:
		a.kind, a.value = actPut, value
	default:
		a.kind = actDelete
	}
	if rand.IntN(2) == 0 {
		return a
	}
	a.match = last.at
	a.absent = last.known && last.at == 0 && a.kind == actPut
	return a
}

// patience of a client: most give up while a node would still try.
func (c *crowd) patience() time.Duration {
	if rand.IntN(4) == 0 {
		return 12 * time.Second
	}
	return time.Second + rand.N(2*time.Second)
}

// ask asks a node, and notes what became of it.
func (c *crowd) ask(node int, a *act) {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience())
	defer cancel()
	method := [...]string{http.MethodGet, http.MethodPut, http.MethodDelete}[a.asked.kind]
	body := io.Reader(http.NoBody)
	if a.asked.kind == actPut {
		body = oneShot{strings.NewReader(a.asked.value)} // nothing sends it a second time
	}
	req, err := http.NewRequestWithContext(ctx, method, c.targets[node].base+"/v1/tables/"+a.key, body)
	if err != nil {
		a.why = err.Error()
		c.note(*a, refused)
		return
	}
	req.ContentLength = int64(len(a.asked.value))
	if a.asked.match != 0 {
		req.Header.Set("If-Match", c.tag(a.client, a.asked.match))
	}
	if a.asked.absent {
		req.Header.Set("If-None-Match", "*")
	}
	a.began = time.Since(c.began)
	res, err := c.clients[node].Do(req)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	a.ended = time.Since(c.began)
	if err != nil {
		a.why = "no answer: " + plainText(err.Error())
		c.note(*a, transportOutcome(err))
		return
	}
	c.note(*a, c.read(a, res, text))
}

// read takes an answer in, and returns what became of the request.
func (c *crowd) read(a *act, res *http.Response, body []byte) outcome {
	var p api.Problem
	if res.StatusCode >= http.StatusBadRequest {
		_ = json.Unmarshal(body, &p) // what is no problem has no code
	}
	at, _ := api.ParseETag(res.Header.Get("ETag"))
	switch {
	case res.StatusCode == http.StatusOK && a.asked.kind == actGet && at.Index != 0:
		a.told = told{known: true, at: at.Index, value: string(body)}
	case res.StatusCode == http.StatusNoContent && a.asked.kind != actGet && at.Index != 0:
		a.told = told{known: true, at: at.Index}
	case p.Code == api.CodeRowNotFound && a.asked.kind == actGet:
		a.told = told{known: true}
	case p.Code == api.CodePreconditionFailed && a.asked.kind != actGet:
		a.told = told{known: true, failed: true, at: at.Index}
	default:
		a.why = plainProblem(res, body)
		return statusOutcome(res.StatusCode)
	}
	return acked
}

// note keeps what belongs in the history: not what was refused, and no read that was
// not answered.
func (c *crowd) note(a act, became outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.told.known {
		c.mu.refused[a.why]++
	}
	if a.told.known || a.asked.kind != actGet && became != refused {
		c.mu.acts = append(c.mu.acts, a)
	}
}

// final reads every row through every node, when all is well again.
func (c *crowd) final() (refusals []string) {
	for _, key := range slices.Sorted(maps.Keys(c.rows())) {
		for node := range c.targets {
			a := act{client: crowdKeys*crowdClients + node, key: key}
			if c.ask(node, &a); !a.told.known {
				refusals = append(refusals, fmt.Sprintf("%s at %s: %s", key, c.targets[node].name, a.why))
			}
		}
	}
	return refusals
}

// rows are the histories, by row.
func (c *crowd) rows() map[string][]act {
	rows := map[string][]act{}
	for _, a := range c.mu.acts {
		rows[a.key] = append(rows[a.key], a)
	}
	return rows
}
