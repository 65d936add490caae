package api

import "math"

// RequestReport is what a node counted of the row requests that clients sent to it:
// the answer of GET /v1/node/requests.
type RequestReport struct {
	Node        string        `json:"node"`
	Incarnation Incarnation   `json:"incarnation"`
	Total       RequestCounts `json:"total"`  // of this run
	Recent      RequestCounts `json:"recent"` // of about the last minute
	// Before is what the run before this one counted in all; absent if it did not
	// end in order, and then nobody knows.
	Before *RequestsBefore `json:"before,omitempty"`
}

// RequestsBefore is what a run that is over counted.
type RequestsBefore struct {
	Incarnation Incarnation   `json:"incarnation"`
	Total       RequestCounts `json:"total"`
	// ShutMillis is how long, at a restart in place, nobody took connections in
	// from the port: who connected then waited so long, unseen by any count.
	ShutMillis int64 `json:"shut_ms,omitempty"`
}

// RequestCounts are counts of row requests.
type RequestCounts struct {
	Answered uint64          `json:"answered"`
	Refused  map[Code]uint64 `json:"refused,omitempty"` // those that planned change must never cause
	// LongestMicros is the time of the slowest, as the node saw it.
	LongestMicros int64 `json:"longest_us"`
	// Buckets count answers by their time; empty ones are left out.
	Buckets []RequestBucket `json:"buckets,omitempty"`
}

// RequestBucket counts the answers that took about so long: bucket n holds those
// from 2^(n/16) to 2^((n+1)/16) microseconds.
type RequestBucket struct {
	Bucket int    `json:"n"`
	Count  uint64 `json:"count"`
}

// requestFine is how many buckets double the time.
const requestFine = 16

// RequestBuckets is how many buckets there are: the last begins after 16 s.
const RequestBuckets = 24*requestFine + 1

// BucketOf returns the bucket of a time in microseconds.
func BucketOf(micros int64) int {
	if micros < 1 {
		return 0
	}
	return min(int(math.Log2(float64(micros))*requestFine), RequestBuckets-1)
}

// BucketEnd returns the time in microseconds at which a bucket ends.
func BucketEnd(bucket int) int64 {
	return int64(math.Ceil(math.Exp2(float64(bucket+1) / requestFine)))
}

// Quantile returns the time in microseconds that a share q of the answers, from 0
// to 1, did not exceed; 0 if there are none. It is exact to 5 %.
func (c *RequestCounts) Quantile(q float64) int64 {
	var all uint64
	for _, b := range c.Buckets {
		all += b.Count
	}
	var sum uint64
	for _, b := range c.Buckets {
		if sum += b.Count; float64(sum) >= q*float64(all) {
			return min(BucketEnd(b.Bucket), max(c.LongestMicros, 1))
		}
	}
	return 0
}

// RefusedSum returns how many requests were refused in all.
func (c *RequestCounts) RefusedSum() uint64 {
	var n uint64
	for _, k := range c.Refused {
		n += k
	}
	return n
}

// Since returns what came to the counts after older ones of the same run. Of the
// slowest it knows the bucket.
func (c *RequestCounts) Since(old *RequestCounts) RequestCounts {
	d := RequestCounts{Answered: c.Answered - min(old.Answered, c.Answered), Refused: map[Code]uint64{}}
	for code, n := range c.Refused {
		if more := n - min(old.Refused[code], n); more > 0 {
			d.Refused[code] = more
		}
	}
	was := map[int]uint64{}
	for _, b := range old.Buckets {
		was[b.Bucket] = b.Count
	}
	for _, b := range c.Buckets {
		if more := b.Count - min(was[b.Bucket], b.Count); more > 0 {
			d.Buckets = append(d.Buckets, RequestBucket{b.Bucket, more})
			d.LongestMicros = min(BucketEnd(b.Bucket), c.LongestMicros)
		}
	}
	return d
}

// Add adds counts of other requests.
func (c *RequestCounts) Add(o *RequestCounts) {
	c.Answered += o.Answered
	for code, n := range o.Refused {
		if c.Refused == nil {
			c.Refused = map[Code]uint64{}
		}
		c.Refused[code] += n
	}
	c.LongestMicros = max(c.LongestMicros, o.LongestMicros)
	var sums [RequestBuckets]uint64
	for _, list := range [][]RequestBucket{c.Buckets, o.Buckets} {
		for _, b := range list {
			if b.Bucket >= 0 && b.Bucket < RequestBuckets {
				sums[b.Bucket] += b.Count
			}
		}
	}
	c.Buckets = nil
	for n, count := range sums {
		if count > 0 {
			c.Buckets = append(c.Buckets, RequestBucket{n, count})
		}
	}
}
