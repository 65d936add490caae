package node

import (
	"net/http"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"tidal/node/api"
	"tidal/node/internal/server"
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
	row(time.Millisecond, http.StatusInternalServerError, "")
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
