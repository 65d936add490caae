package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// op is what a test does.
type op int

const (
	write       op = iota
	read           // linearizable
	streamWrite    // tidal's, over streams of frames
	streamRead
	batch // of batchRows rows, whole or not at all
	streamBatch
	restart
)

const batchRows = 100

// request is one of a test's.
type request struct {
	node, table int
	key         string
	keys        []string // of a batch
	value       []byte
}

// load is a closed loop of clients, each with one request at a time, to the three
// nodes in turn and to random rows of all tables.
type load struct {
	op                     op
	clients, bytes, tables int
	length                 time.Duration
	each                   bool // every row once, in batches, instead of random ones for a while
}

const (
	keySpace = 100_000
	timeout  = 10 * time.Second
)

// cell is one measurement.
type cell struct {
	perSecond float64 // that were done
	p50, p99  float64 // milliseconds
	cpu       float64 // seconds of the three servers for 100,000
	failed    float64 // requests
	loadAvg   float64 // of the machine over the last minute
	failure   string  // the first
}

// String is the cell as progress shows it.
func (c cell) String() string {
	s := fmt.Sprintf("%7.0f/s  p50 %6.2f  p99 %7.2f ms  %6.1f CPU s/100,000  load %.1f", c.perSecond, c.p50, c.p99, c.cpu, c.loadAvg)
	if c.failed > 0 {
		s += fmt.Sprintf("  %.0f failed: %s", c.failed, c.failure)
	}
	return s
}

// run loads s for the load's length.
func (l load) run(ctx context.Context, s store) (cell, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var next atomic.Int64
	var took []time.Duration
	var c cell
	value := make([]byte, l.bytes) // random, so that no store gains by compressing it
	for i := range value {
		value[i] = byte('a' + rand.IntN(26))
	}
	cpu, began := cpuSeconds(s.pids()), time.Now()
	for client := range l.clients {
		wg.Go(func() {
			var mine []time.Duration
			for n := client; ctx.Err() == nil; n++ {
				r, more := l.any(n, time.Since(began))
				if l.each {
					r, more = l.nth(int(next.Add(1)) - 1)
				}
				if !more {
					break
				}
				at := time.Now()
				pctx, cancel := context.WithTimeout(ctx, timeout)
				r.value = value
				err := s.do(pctx, l.op, r)
				cancel()
				if err == nil {
					mine = append(mine, time.Since(at))
					continue
				}
				mu.Lock()
				if c.failed++; c.failure == "" {
					c.failure = err.Error()
				}
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return c, err
	}
	if len(took) == 0 {
		return c, fmt.Errorf("not one was done; the first failure: %s", c.failure)
	}
	wall, n := time.Since(began).Seconds(), float64(len(took))
	rows := n
	if l.op == batch || l.op == streamBatch {
		rows *= batchRows
	}
	slices.Sort(took)
	ms := func(q float64) float64 { return float64(took[int(q*(n-1))].Microseconds()) / 1000 }
	c.perSecond, c.p50, c.p99 = rows/wall, ms(.5), ms(.99)
	c.cpu = (cpuSeconds(s.pids()) - cpu) / rows * 100_000
	c.loadAvg = loadAverage()
	return c, nil
}

// any is a request for a random row, or a batch of some that are beside it.
func (l load) any(n int, after time.Duration) (request, bool) {
	key := rand.IntN(keySpace)
	r := request{node: n % nodes, table: key % l.tables, key: rowKey(key)}
	if l.op == batch || l.op == streamBatch {
		for i := range batchRows {
			r.keys = append(r.keys, fmt.Sprintf("%s-%02d", r.key, i))
		}
	}
	return r, after < l.length
}

// nth is the nth batch of those that write every row.
func (l load) nth(n int) (request, bool) {
	r := request{node: n % nodes, table: n % l.tables}
	for i := range batchRows {
		if key := (n/l.tables*batchRows+i)*l.tables + r.table; key < keySpace {
			r.keys = append(r.keys, rowKey(key))
		}
	}
	return r, len(r.keys) > 0
}

func rowKey(n int) string { return fmt.Sprintf("k%08d", n) }

// cpuSeconds is what processes have used so far, in user mode and the kernel.
func cpuSeconds(pids []int) (sum float64) {
	const ticks = 100 // USER_HZ, fixed on Linux
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')'):]), " ")
		f := strings.Fields(rest) // from the third field on: see proc(5)
		for _, s := range f[11:13] {
			v, _ := strconv.ParseFloat(s, 64)
			sum += v / ticks
		}
	}
	return sum
}

func loadAverage() float64 {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}
