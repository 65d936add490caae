package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
)

// benchNode answers what a bench asks, and notes it.
type benchNode struct {
	*httptest.Server
	mu       sync.Mutex
	tables   []string // as they are now
	made     []string
	puts     int
	gets     int
	keyed    int // writes with an Idempotency-Key
	row      http.HandlerFunc
	measured chan struct{} // closed at the first request for a row
}

func newBenchNode(t *testing.T) *benchNode {
	t.Helper()
	n := &benchNode{measured: make(chan struct{})}
	n.Server = httptest.NewServer(http.HandlerFunc(n.serve))
	t.Cleanup(n.Close)
	return n
}

func (n *benchNode) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	n.mu.Lock()
	defer n.mu.Unlock()
	name, key, isRow := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/tables/"), "/rows/")
	w.Header().Set("ETag", `"2-12"`)
	switch {
	case !isRow && r.Method == http.MethodPut:
		n.tables, n.made = append(n.tables, name), append(n.made, name)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"name":%q}`, name)
	case !isRow && r.Method == http.MethodDelete:
		n.tables = slices.DeleteFunc(n.tables, func(t string) bool { return t == name })
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut:
		if n.puts++; n.puts == 1 {
			close(n.measured)
		}
		if len(r.Header[api.HeaderIdempotency]) > 0 {
			n.keyed++
		}
		if n.row != nil {
			n.row(w, r)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case key == "k00000001": // is missing
		n.gets++
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"code":%q}`, api.CodeRowNotFound)
	default:
		n.gets++
	}
}

func (n *benchNode) bench(ctx context.Context, t *testing.T, line string) (code exitCode, out benchOut, stdout, stderr string) { //nolint:revive // all belong together
	t.Helper()
	var data, talk bytes.Buffer
	args := append([]string{"tidal", "bench", "--endpoint", n.URL}, strings.Fields(line)...)
	code = exitCode(run(ctx, args, strings.NewReader(""), &data, &talk, func(string) (string, bool) { return "", false }))
	if strings.Contains(line, "json") && data.Len() > 0 {
		if err := json.Unmarshal(data.Bytes(), &out); err != nil {
			t.Fatalf("%v in %s", err, data.String())
		}
	}
	if len(n.tables) > 0 {
		t.Errorf("the tables %v are left", n.tables)
	}
	return code, out, data.String(), talk.String()
}

func TestBench(t *testing.T) {
	n := newBenchNode(t)
	code, out, _, stderr := n.bench(t.Context(), t, "--clients 4 --reads 50 --tables 2 --keys 20 --size 1KiB --for 100ms --warmup 0s -o json")
	if code != exitOK || out.Write == nil || out.Read == nil {
		t.Fatalf("exit code %d, %+v, stderr %s", code, out, stderr)
	}
	if len(n.made) != 2 || n.keyed > 0 {
		t.Errorf("tables %v were made, and %d writes had a key", n.made, n.keyed)
	}
	// The rows to read were written before, and are not counted.
	if want := uint64(n.puts) - 20; out.Write.Requests != want || out.Read.Requests != uint64(n.gets) || n.gets == 0 || want == 0 {
		t.Errorf("counted %d writes and %d reads of %d and %d", out.Write.Requests, out.Read.Requests, want, n.gets)
	}
	if w := out.Write; w.P50 <= 0 || w.P50 > w.P99 || w.P99 > w.P999 || w.P999 > w.Max || w.NotDone > 0 {
		t.Errorf("%+v", w)
	}
	if !strings.Contains(stderr, "they are dropped at the end") {
		t.Errorf("stderr %s", stderr)
	}
}

// TestBenchCountsRefusals: what is not done is counted by its reason, and not sent again.
func TestBenchCountsRefusals(t *testing.T) {
	n := newBenchNode(t)
	n.row = func(w http.ResponseWriter, _ *http.Request) {
		switch n.puts % 3 {
		case 0:
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprintf(w, `{"code":%q,"detail":"no room"}`, api.CodeTooMany)
		case 1:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
	code, out, _, stderr := n.bench(t.Context(), t, "--writers 3 --tables 1 --for 100ms --warmup 0s -o json")
	if code != exitOK || out.Write == nil {
		t.Fatalf("exit code %d, stderr %s", code, stderr)
	}
	many, lost := out.Write.Reasons["too-many-requests"], out.Write.Reasons["outcome-unknown"]
	if many == nil || lost == nil || many.First != "no room (too-many-requests)" {
		t.Fatalf("reasons %v", out.Write.Reasons)
	}
	if got := out.Write.Requests + many.Count + lost.Count; got != uint64(n.puts) || out.Write.NotDone != many.Count+lost.Count {
		t.Errorf("%d of %d requests are told of", got, n.puts)
	}
	_, _, stdout, _ := n.bench(t.Context(), t, "--writers 3 --tables 1 --for 20ms --warmup 0s")
	if !strings.Contains(stdout, "KIND   DONE") || !strings.Contains(stdout, "write  too-many-requests") {
		t.Errorf("stdout %s", stdout)
	}
}

// TestBenchOpenLoop: requests are due at their times, whether or not a client is free,
// and wait on their own account.
func TestBenchOpenLoop(t *testing.T) {
	n := newBenchNode(t)
	_, out, _, _ := n.bench(t.Context(), t, "--writers 4 --rate 200 --tables 1 --for 250ms --warmup 0s -o json")
	if out.Write == nil || out.Write.Requests < 30 || out.Write.Requests > 50 {
		t.Errorf("%+v: want about 50", out.Write)
	}
	n.row = func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(50 * time.Millisecond)
		w.WriteHeader(http.StatusNoContent)
	}
	_, out, _, stderr := n.bench(t.Context(), t, "--writers 1 --rate 200 --tables 1 --for 250ms --warmup 0s -o json")
	if out.Write.Requests > 7 || out.Unsent < 30 || !strings.Contains(stderr, "were due and not sent") {
		t.Errorf("%+v, %d unsent, stderr %s", out.Write, out.Unsent, stderr)
	}
	if out.Write.Max < 150 { // the last was due long before it was sent
		t.Errorf("the longest took %.1f ms: its wait does not count", out.Write.Max)
	}
}

// TestBenchSeldom: the rate of requests that are seldom due is that of all the time, and
// one that is due in an age is not sent now.
func TestBenchSeldom(t *testing.T) {
	for rate, want := range map[string]int{"10": 3, "1e-300": 1} {
		n := newBenchNode(t)
		_, out, _, _ := n.bench(t.Context(), t, "--writers 4 --tables 1 --for 250ms --warmup 0s -o json --rate "+rate)
		if w := out.Write; w == nil || int(w.Requests) != want || out.Seconds < 0.25 || w.PerSecond > float64(want)*4 {
			t.Errorf("--rate %s: %+v in %v s", rate, w, out.Seconds)
		}
	}
}

// TestBenchInterrupted: Ctrl-C shows what there is, and nothing of it stays.
func TestBenchInterrupted(t *testing.T) {
	n := newBenchNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-n.measured
		<-time.After(50 * time.Millisecond)
		cancel()
	}()
	code, out, _, stderr := n.bench(ctx, t, "--writers 2 --tables 1 --for 1h --warmup 0s -o json")
	if code != exitInterrupted || out.Write == nil || out.Write.Requests == 0 || out.Seconds > 60 {
		t.Errorf("exit code %d, %+v, stderr %s", code, out, stderr)
	}
}

func TestBenchUsage(t *testing.T) {
	for line, want := range map[string]string{
		"--clients 0":             "no clients",
		"--clients 1 --writers 1": "do not go with",
		"--reads 101":             "want a percentage",
		"--rate 0":                "want requests a second",
		"--size 2MiB":             "want 0 to 1048576 bytes",
		"--size many":             "it is a size",
		"--for 0s":                "it is a duration above 0",
		"--keys 0":                "want 1 to",
		"--replicas 8":            "want 0 to 7",
		"--consistency some":      "it is linearizable or local",
		"t":                       "unexpected argument",
	} {
		n := newBenchNode(t)
		code, _, _, stderr := n.bench(t.Context(), t, line)
		if code != exitUsage || !strings.Contains(stderr, want) || len(n.made) > 0 {
			t.Errorf("%s: exit code %d, stderr %s", line, code, stderr)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	var all []time.Duration
	for range 20_000 {
		d := time.Duration(rand.Int64N(1 << rand.IntN(45)))
		all = append(all, d)
		h.add(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0.0001, .5, .9, .99, .999, 1} {
		want := all[int(q*float64(len(all))+.999999)-1]
		got := h.quantile(q)
		if got < want || float64(got) > float64(want)*1.017+1 {
			t.Errorf("%g: %s, want %s", q, got, want)
		}
	}
	for _, n := range []uint64{0, 1, 127, 128, 129, 255, 256, 1 << 40, 1<<63 - 1} {
		if b := bucketOf(n); uint64(bucketEnd(b)) < n || b > 0 && uint64(bucketEnd(b-1)) >= n {
			t.Errorf("%d is in bucket %d, which ends at %d", n, b, bucketEnd(b))
		}
	}
}
