package proctest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
)

// seen is what a node says of a row.
type seen struct {
	found bool
	etag  string
	value []byte
}

// row is a write to be read back.
type row struct {
	write
	truth *seen // what the first linearizable read of an unknown write said
	wrong string
}

// judge says what is wrong with what a node says of a row; "" if nothing is.
func (r *row) judge(s seen) string {
	switch {
	case s.found && !bytes.Equal(s.value, rowValue(r.table, r.key)):
		return fmt.Sprintf("value is %.60q", s.value)
	case r.outcome == acked && !s.found:
		return "acknowledged, and lost"
	case r.outcome == acked && s.etag != r.etag:
		return fmt.Sprintf("acknowledged as %s, now %s: it was applied again", r.etag, s.etag)
	case r.outcome == unsent && s.found:
		return "never sent, and there"
	case r.outcome == refused && s.found:
		return "refused as not applied (" + r.why + "), and there"
	case r.outcome == doubled:
		return "applied twice: " + r.why
	case r.truth != nil && (s.found != r.truth.found || s.etag != r.truth.etag):
		return fmt.Sprintf("replicas differ: found %v %s here, %v %s elsewhere", s.found, s.etag, r.truth.found, r.truth.etag)
	}
	return ""
}

// followerLag is how long a follower may take to apply the last writes.
const followerLag = 5 * time.Second

// readers bounds the reads at once.
const readers = 64

// readBack reads every row of a fleet that has stopped from every node, first
// linearizably, then from the node's own replica, which may be so late. It
// returns what is wrong and how many of the unknown writes are there.
func readBack(targets []target, writes []write, late time.Duration) (wrong []string, applied int) {
	var rows []*row
	for _, w := range writes {
		rows = append(rows, &row{write: w})
	}
	sound := rows // what has been right so far
	for _, tg := range targets {
		for _, r := range pass(tg, "", sound) {
			wrong = append(wrong, fmt.Sprintf("%s: %s/%s: %s", tg.name, r.table, r.key, r.wrong))
		}
		sound = slices.DeleteFunc(slices.Clone(sound), func(r *row) bool { return r.wrong != "" })
	}
	for _, tg := range targets {
		bad := sound
		_ = poll(late, func() error {
			if bad = pass(tg, "?consistency=local", bad); len(bad) > 0 {
				return fmt.Errorf("%d rows", len(bad))
			}
			return nil
		})
		for _, r := range bad {
			wrong = append(wrong, fmt.Sprintf("%s: local: %s/%s: %s", tg.name, r.table, r.key, r.wrong))
		}
	}
	for _, r := range rows {
		if r.truth != nil && r.truth.found {
			applied++
		}
	}
	return wrong, applied
}

// pass reads rows from one node and returns those that are wrong.
func pass(tg target, query string, rows []*row) []*row {
	tr := transport(tg.tls)
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: 20 * time.Second}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(readers, len(rows)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(rows)); i = next.Add(1) - 1 {
				r := rows[i]
				s, err := get(client, tg.base+"/v1/tables/"+r.table+"/rows/"+r.key+query)
				if err != nil {
					r.wrong = "read refused: " + err.Error()
					continue
				}
				if r.outcome == unknown && r.truth == nil {
					r.truth = &s
				}
				r.wrong = r.judge(s)
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(slices.Clone(rows), func(r *row) bool { return r.wrong == "" })
}

// get reads one row. A row that is not there is no error; a table is.
func get(client *http.Client, url string) (seen, error) {
	res, err := client.Get(url)
	if err != nil {
		return seen{}, err
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return seen{}, err
	}
	if res.StatusCode == http.StatusOK {
		return seen{found: true, etag: res.Header.Get("ETag"), value: body}, nil
	}
	var p api.Problem
	if res.StatusCode == http.StatusNotFound && json.Unmarshal(body, &p) == nil && p.Code == api.CodeRowNotFound {
		return seen{}, nil
	}
	return seen{}, fmt.Errorf("%d %s", res.StatusCode, bytes.TrimSpace(body))
}
