package node

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/server"
	"tidal/node/internal/store"
)

// The recent past is kept in slots, the oldest of which is forgotten at a time.
const (
	recentSlot  = 5 * time.Second
	recentSlots = 12
)

// rowRoutes is how the routes of row requests begin.
const rowRoutes = "/v1/tables/{table}/rows"

// codeCut stands among the refusals for a request that the node broke off.
const codeCut api.Code = "cut"

// tally counts requests.
type tally struct {
	answered uint64
	refused  map[api.Code]uint64
	longest  int64 // microseconds
	buckets  [api.RequestBuckets]uint64
}

func (c *tally) count(micros int64, refused api.Code) {
	c.answered++
	c.longest = max(c.longest, micros)
	c.buckets[api.BucketOf(micros)]++
	if refused != "" {
		if c.refused == nil {
			c.refused = map[api.Code]uint64{}
		}
		c.refused[refused]++
	}
}

func (c *tally) counts() api.RequestCounts {
	out := api.RequestCounts{Answered: c.answered, Refused: map[api.Code]uint64{}, LongestMicros: c.longest}
	maps.Copy(out.Refused, c.refused)
	for i, n := range c.buckets {
		if n > 0 {
			out.Buckets = append(out.Buckets, api.RequestBucket{Bucket: i, Count: n})
		}
	}
	return out
}

// requests counts the row requests that clients send to this node, as they see
// them: with the wait for an owner, and what was refused.
type requests struct {
	before *api.RequestsBefore // what the run before left; nil: nothing

	mu struct {
		sync.Mutex
		total  tally
		recent [recentSlots]tally
		slot   int64 // the newest, in recentSlot since 1970
	}
}

// refusedBy returns the reason for which an answer counts as refused, "" if it
// does not.
func refusedBy(e *server.Event) api.Code {
	switch {
	case e.Cut:
		return codeCut
	case e.Status == http.StatusTooManyRequests, e.Status == http.StatusBadGateway, e.Status == http.StatusInternalServerError,
		e.Status == http.StatusServiceUnavailable, e.Status == http.StatusInsufficientStorage, e.Code == api.CodeStaleOwner:
		return e.Code
	}
	return ""
}

// answered counts an HTTP request that was answered.
func (q *requests) answered(e server.Event, now time.Time) {
	if !strings.HasPrefix(e.Route, rowRoutes) {
		return
	}
	micros, refused := e.Took.Microseconds(), refusedBy(&e)
	slot := now.UnixNano() / int64(recentSlot)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turnLocked(slot)
	q.mu.total.count(micros, refused)
	q.mu.recent[slot%recentSlots].count(micros, refused)
}

// turnLocked empties the slots between the newest and the one of now.
func (q *requests) turnLocked(slot int64) {
	for s := max(q.mu.slot+1, slot-recentSlots+1); s <= slot; s++ {
		q.mu.recent[s%recentSlots] = tally{}
	}
	q.mu.slot = max(q.mu.slot, slot)
}

// counts returns all counts.
func (q *requests) counts(now time.Time) (total, recent api.RequestCounts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turnLocked(now.UnixNano() / int64(recentSlot))
	for i := range q.mu.recent {
		c := q.mu.recent[i].counts()
		recent.Add(&c)
	}
	return q.mu.total.counts(), recent
}

// Requests implements server.State.
func (s state) Requests() api.RequestReport {
	n := s.n
	out := api.RequestReport{Node: n.o.Config.Node.ID, Incarnation: n.who.Incarnation, Before: n.requests.before}
	out.Total, out.Recent = n.requests.counts(time.Now())
	return out
}

// lastCounts is what a run leaves to the next one.
type lastCounts struct {
	Incarnation api.Incarnation   `json:"incarnation"`
	Total       api.RequestCounts `json:"total"`
	Shut        int64             `json:"shut,omitempty"` // Unix time in milliseconds since which nobody took connections in
}

// countsFile is where a run leaves its counts.
func (n *node) countsFile() string { return filepath.Join(n.o.Config.Node.Data, "requests.json") }

// leaveCounts writes what was counted, for the next run to show. It is of use for
// reports alone: what goes wrong is logged.
func (n *node) leaveCounts() {
	total, _ := n.requests.counts(time.Now())
	left := lastCounts{Incarnation: n.who.Incarnation, Total: total}
	if n.restart.port != nil {
		left.Shut = n.restart.shut.UnixMilli()
	}
	if err := writeCounts(vfs.Default, n.countsFile(), &left); err != nil {
		n.log.Warn("the counts of requests were not left to the next run", "error", err)
	}
}

func writeCounts(disk vfs.FS, path string, left *lastCounts) error {
	b, err := json.Marshal(left)
	if err != nil {
		return err
	}
	return store.WriteFile(disk, path, b)
}

// readCounts returns what the run before this one left, if it was the run before.
func readCounts(disk vfs.FS, path string, own api.Incarnation, now time.Time) (*api.RequestsBefore, error) {
	f, err := disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	var left lastCounts
	if err := json.Unmarshal(b, &left); err != nil {
		return nil, err
	}
	if left.Incarnation.Node != own.Node || left.Incarnation.Start+1 != own.Start {
		return nil, nil // a run between the two ended without leaving anything
	}
	out := &api.RequestsBefore{Incarnation: left.Incarnation, Total: left.Total}
	if left.Shut > 0 {
		out.ShutMillis = max(now.UnixMilli()-left.Shut, 1)
	}
	return out, nil
}

// takeCounts takes what the run before left, once this one listens.
func (n *node) takeCounts() {
	before, err := readCounts(vfs.Default, n.countsFile(), n.who.Incarnation, time.Now())
	if err != nil {
		n.log.Warn("the counts of requests of the run before cannot be read", "error", err)
	}
	n.requests.before = before
}
