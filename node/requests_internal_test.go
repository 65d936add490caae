package node

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"tidal/node/api"
	"tidal/node/internal/server"
	"tidal/node/internal/store"
)

func TestRequestsCount(t *testing.T) {
	var q requests
	now := time.Unix(1_000_000, 0)
	row := func(took time.Duration, status int, code api.Code) {
		q.answered(server.Event{Route: "/v1/tables/{table}/rows/{key}", Status: status, Code: code, Took: took}, now)
	}
	row(time.Millisecond, http.StatusOK, "")
	row(time.Second, http.StatusServiceUnavailable, api.CodeNoOwner)
	row(time.Millisecond, http.StatusConflict, api.CodeStaleOwner)
	q.answered(server.Event{Route: "/v1/tables/{table}/rows", Status: http.StatusBadGateway, Code: api.CodeOutcomeUnknown, Cut: true}, now)
	row(time.Millisecond, http.StatusPreconditionFailed, api.CodePreconditionFailed)
	q.answered(server.Event{Route: "/health", Status: http.StatusServiceUnavailable, Took: time.Hour}, now)
	total, recent := q.counts(now)
	if diff := cmp.Diff(total, recent); diff != "" {
		t.Errorf("just now: %s", diff)
	}
	want := map[api.Code]uint64{api.CodeNoOwner: 1, api.CodeStaleOwner: 1, codeCut: 1}
	if diff := cmp.Diff(want, total.Refused); diff != "" || total.Answered != 5 || total.LongestMicros != 1_000_000 {
		t.Errorf("%+v", total)
	}
	now = now.Add(40 * time.Second)
	row(2*time.Millisecond, http.StatusOK, "")
	now = now.Add(30 * time.Second)
	if _, recent = q.counts(now); recent.Answered != 1 || recent.LongestMicros != 2000 {
		t.Errorf("after more than a minute, recent is %+v", recent)
	}
	now = now.Add(time.Hour)
	if total, recent = q.counts(now); recent.Answered != 0 || total.Answered != 6 {
		t.Errorf("after an hour: %+v, recent %+v", total, recent)
	}
}

// Only the very next run shows what a run left.
func TestCountsAreLeft(t *testing.T) {
	disk := vfs.NewMem()
	own := api.Incarnation{Node: "a", Start: 7, Suffix: 1}
	now := time.Unix(1_000_000, 0)
	if before, err := readCounts(disk, "f", own, now); before != nil || err != nil {
		t.Errorf("with no file: %+v, %v", before, err)
	}
	left := lastCounts{
		Incarnation: api.Incarnation{Node: "a", Start: 6, Suffix: 9}, Shut: now.UnixMilli() - 120,
		Total: api.RequestCounts{Answered: 3, LongestMicros: 5, Refused: map[api.Code]uint64{api.CodeTooMany: 1}},
	}
	if err := writeCounts(disk, "f", &left); err != nil {
		t.Fatal(err)
	}
	before, err := readCounts(disk, "f", own, now)
	if want := (&api.RequestsBefore{Incarnation: left.Incarnation, Total: left.Total, ShutMillis: 120}); err != nil || !cmp.Equal(before, want) {
		t.Errorf("%+v, %v", before, err)
	}
	own.Start++
	if before, err = readCounts(disk, "f", own, now); before != nil || err != nil {
		t.Errorf("two runs later: %+v, %v", before, err)
	}
}

// A file that was cut short is not taken for counts, whatever is left of it.
func TestCutCountsAreNone(t *testing.T) {
	disk := vfs.NewMem()
	own := api.Incarnation{Node: "a", Start: 7, Suffix: 1}
	left := lastCounts{Incarnation: api.Incarnation{Node: "a", Start: 6, Suffix: 9}, Shut: 1_000_000, Total: api.RequestCounts{Answered: 31}}
	whole, err := json.Marshal(&left)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := store.WriteFile(disk, "f", whole[:n]); err != nil {
			t.Fatal(err)
		}
		if before, err := readCounts(disk, "f", own, time.Unix(1_000_000, 0)); before != nil || err == nil {
			t.Errorf("of %s: %+v, %v", whole[:n], before, err)
		}
	}
}

// What the run before left stands until what this one leaves is there, whole.
func TestCountsAreWholeAfterACrash(t *testing.T) {
	own := api.Incarnation{Node: "a", Start: 8}
	old := lastCounts{Incarnation: api.Incarnation{Node: "a", Start: 6}}
	left := lastCounts{Incarnation: api.Incarnation{Node: "a", Start: 7}, Total: api.RequestCounts{Answered: 31}}
	for at, done := 0, false; !done; at++ {
		disk := vfs.NewCrashableMem()
		if err := writeCounts(disk, "f", &old); err != nil {
			t.Fatal(err)
		}
		var cut *vfs.MemFS
		ops := 0
		err := writeCounts(errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
			if ops == at {
				cut = disk.CrashClone(vfs.CrashCloneCfg{})
			}
			ops++
			return nil
		})), "f", &left)
		if err != nil {
			t.Fatal(err)
		}
		if done = cut == nil; done {
			cut = disk.CrashClone(vfs.CrashCloneCfg{})
		}
		before, err := readCounts(cut, "f", own, time.Now())
		if err != nil || done && (before == nil || before.Total.Answered != 31) {
			t.Errorf("power cut before operation %d of %d: %+v, %v", at, ops, before, err)
		}
	}
}
