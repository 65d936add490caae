package proctest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
)

// batchRows is how many rows each batch of a batcher writes.
const batchRows = 20

// batcher writes the same rows in batches, over and over, and reads them in pages
// meanwhile: each page must be of one batch.
type batcher struct {
	targets []target
	table   string
	clients []*http.Client
	stopped chan struct{}
	stop    func()
	wg      sync.WaitGroup

	mu struct {
		sync.Mutex
		acked, pages int
		refused      map[string]bool // values of batches of which nothing was done
		wrong        []string
	}
}

// launchBatcher starts one on a table.
func launchBatcher(t *testing.T, targets []target, table string) *batcher {
	t.Helper()
	b := &batcher{targets: targets, table: table, stopped: make(chan struct{})}
	b.mu.refused = map[string]bool{}
	for _, tg := range targets {
		b.clients = append(b.clients, &http.Client{Transport: transport(tg.tls), Timeout: 20 * time.Second})
	}
	b.stop = sync.OnceFunc(func() {
		close(b.stopped)
		b.wg.Wait()
		for _, c := range b.clients {
			c.CloseIdleConnections()
		}
	})
	t.Cleanup(b.stop)
	b.wg.Go(b.write)
	for _, query := range []string{"", "&consistency=local"} {
		b.wg.Go(func() { b.read(query) })
	}
	return b
}

// each calls f for one node after the other until the batcher is stopped.
func (b *batcher) each(f func(turn int) (again bool)) {
	for turn := 0; ; turn++ {
		wait := 2 * time.Millisecond
		if !f(turn) {
			wait = 20 * time.Millisecond
		}
		select {
		case <-b.stopped:
			return
		case <-time.After(wait):
		}
	}
}

func (b *batcher) ask(turn int, method, query string, body []byte) (outcome, []byte) {
	i := turn % len(b.targets)
	req, err := http.NewRequest(method, b.targets[i].base+"/v1/tables/"+b.table+"/rows"+query, http.NoBody)
	if err != nil {
		return refused, nil
	}
	if body != nil {
		req.Body, req.ContentLength = oneShot{bytes.NewReader(body)}, int64(len(body))
	}
	res, err := b.clients[i].Do(req)
	if err != nil {
		return transportOutcome(err), nil
	}
	answer, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return unknown, nil
	}
	if res.StatusCode == http.StatusOK {
		return acked, answer
	}
	return statusOutcome(res.StatusCode), answer
}

func (b *batcher) write() {
	b.each(func(turn int) bool {
		var body []byte
		for i := range batchRows {
			body = api.AppendChange(body, &api.Change{Key: fmt.Sprintf("batch-%02d", i), Value: []byte(strconv.Itoa(turn))})
		}
		end, _ := b.ask(turn, http.MethodPost, "", body)
		b.mu.Lock()
		defer b.mu.Unlock()
		switch end {
		case acked:
			b.mu.acked++
		case refused:
			b.mu.refused[strconv.Itoa(turn)] = true
		case unsent, unknown, doubled:
		}
		return end == acked
	})
}

func (b *batcher) read(query string) {
	b.each(func(turn int) bool {
		end, body := b.ask(turn, http.MethodGet, "?prefix=batch-"+query, nil)
		if end != acked {
			return false
		}
		why := b.judge(body)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mu.pages++
		if why != "" {
			b.mu.wrong = append(b.mu.wrong, b.targets[turn%len(b.targets)].name+query+": "+why)
		}
		return true
	})
}

// judge says what is wrong with a page, "" for nothing.
func (b *batcher) judge(body []byte) string {
	var p api.Page
	if err := json.Unmarshal(body, &p); err != nil {
		return err.Error()
	}
	if len(p.Rows) == 0 {
		return "" // none was written yet
	}
	if len(p.Rows) != batchRows || p.Next != "" {
		return fmt.Sprintf("%d rows, next %q", len(p.Rows), p.Next)
	}
	mixed := func(r api.Row) bool {
		return r.Version != p.Rows[0].Version || !bytes.Equal(r.Value, p.Rows[0].Value)
	}
	if slices.ContainsFunc(p.Rows, mixed) {
		return fmt.Sprintf("parts of several batches: %+v", p.Rows)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if v := string(p.Rows[0].Value); b.mu.refused[v] {
		return "batch " + v + " was refused as not done, and is there"
	}
	return ""
}

// report ends the batcher and says what it has seen.
func (b *batcher) report(t *testing.T, least int) {
	t.Helper()
	b.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Logf("%d batches acknowledged, %d refused, %d pages read", b.mu.acked, len(b.mu.refused), b.mu.pages)
	if b.mu.acked < least || b.mu.pages < least {
		t.Error("too few batches and pages to prove anything")
	}
	if len(b.mu.wrong) > 0 {
		t.Errorf("%d pages are wrong:\n%s", len(b.mu.wrong), strings.Join(b.mu.wrong[:min(5, len(b.mu.wrong))], "\n"))
	}
}
