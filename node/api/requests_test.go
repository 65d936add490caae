package api_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidal/node/api"
)

func counts(micros ...int64) api.RequestCounts {
	var c api.RequestCounts
	for _, m := range micros {
		c.Add(&api.RequestCounts{Answered: 1, LongestMicros: m, Buckets: []api.RequestBucket{{Bucket: api.BucketOf(m), Count: 1}}})
	}
	return c
}

func TestBuckets(t *testing.T) {
	for _, m := range []int64{0, 1, 2, 99, 1000, 1 << 20, 16_000_000, 1 << 40} {
		b := api.BucketOf(m)
		if b < 0 || b >= api.RequestBuckets {
			t.Errorf("%d µs is in bucket %d", m, b)
		}
		if end := api.BucketEnd(b); m < 1<<24 && (end < m || m > 100 && float64(end) > float64(m)*1.06) {
			t.Errorf("%d µs is in bucket %d, which ends at %d", m, b, end)
		}
	}
}

func TestQuantile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var all []int64
	for range 5000 {
		all = append(all, 50+int64(rnd.ExpFloat64()*5000))
	}
	c := counts(all...)
	slices.Sort(all)
	for _, q := range []float64{.5, .99, 1} {
		exact := all[min(int(q*5000), 4999)]
		if got := c.Quantile(q); float64(got) < .94*float64(exact) || float64(got) > 1.06*float64(exact) {
			t.Errorf("quantile %g is %d µs, want about %d", q, got, exact)
		}
	}
	if got := (&api.RequestCounts{}).Quantile(.99); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

// What came since is what was added, and the slowest of it is known to its bucket,
// also if the run had slower ones before.
func TestSince(t *testing.T) {
	before := counts(900_000, 1000)
	before.Refused = map[api.Code]uint64{api.CodeNoOwner: 2}
	more := counts(2000, 3000)
	more.Refused = map[api.Code]uint64{api.CodeNoOwner: 1, api.CodeTooMany: 4}
	after := before
	after.Refused = map[api.Code]uint64{api.CodeNoOwner: 2}
	after.Add(&more)
	got := after.Since(&before)
	if got.LongestMicros < 3000 || got.LongestMicros > 3200 {
		t.Errorf("the slowest since is %d µs, want about 3000", got.LongestMicros)
	}
	got.LongestMicros = more.LongestMicros
	if diff := cmp.Diff(more, got); diff != "" {
		t.Error(diff)
	}
	if n := got.RefusedSum(); n != 5 {
		t.Errorf("%d were refused since", n)
	}
}
