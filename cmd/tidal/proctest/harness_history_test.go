package proctest_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// actKind is what a client asked of a row.
type actKind uint8

const (
	actGet actKind = iota
	actPut
	actDelete
)

// asked is one request about a row. The value of a put is unique in its history.
type asked struct {
	kind   actKind
	value  string
	match  uint64 // If-Match: the version that must be there; 0: none
	absent bool   // If-None-Match: *
}

func (a asked) String() string {
	name := [...]string{"get", "put " + a.value, "delete"}[a.kind]
	switch {
	case a.absent:
		return name + " if absent"
	case a.match != 0:
		return fmt.Sprintf("%s if %x", name, a.match)
	}
	return name
}

// told is its answer. The zero value is none: a write may be done or not, now or
// at any time to come.
type told struct {
	known  bool
	failed bool   // the condition did not hold
	at     uint64 // version: of the row read, of the write done, or of what failed it; 0: no row
	value  string // read
}

func (r told) String() string {
	switch {
	case !r.known:
		return "unknown"
	case r.failed:
		return fmt.Sprintf("failed at %x", r.at)
	}
	return fmt.Sprintf("%s at %x", r.value, r.at)
}

// act is a request and its answer, with the times of one clock.
type act struct {
	client       int
	key          string
	asked        asked
	told         told
	began, ended time.Duration
	why          string // of an unknown one
}

// register is one row as the model has it.
type register struct {
	here  bool
	value string
	at    uint64 // version of the last write, or, if not sure, one that is older
	sure  bool
}

// holds reports whether the condition of a holds.
func (r register) holds(a asked) bool {
	switch {
	case a.absent:
		return !r.here
	case a.match != 0:
		return r.here && r.is(a.match)
	}
	return true
}

// is reports whether the last write can have been at a version.
func (r register) is(at uint64) bool { return r.at == at && r.sure || r.at < at && !r.sure }

// step is the model: what may come after r.
func (r register) step(a asked, t told) (bool, register) {
	switch {
	case a.kind == actGet && t.at == 0:
		return !r.here, r
	case a.kind == actGet:
		return r.here && r.value == t.value && r.is(t.at), register{here: true, value: t.value, at: t.at, sure: true}
	case t.failed && t.at == 0:
		return !r.here && a.match != 0, r
	case t.failed:
		ok := r.here && r.is(t.at) && a.match != t.at
		r.at, r.sure = t.at, true
		return ok, r
	case !t.known && !r.holds(a):
		return true, r // it fails, and nobody hears of it
	case !t.known:
		return true, register{here: a.kind == actPut, value: a.value, at: max(r.at, a.match)}
	}
	// Versions only grow.
	return r.holds(a) && t.at > r.at, register{here: a.kind == actPut, value: a.value, at: t.at, sure: true}
}

// rowModel is register in porcupine's words.
func rowModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, output any) (bool, any) {
			r, a, t := state.(register), input.(asked), output.(told)
			return r.step(a, t)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v: %v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// settle prepares the history of one row for the checker. A write of unknown outcome
// stays open until the end, but for two kinds, whose openness shows in no answer:
// one whose value was read is done, at the version that was read, before the end of
// that read; and a put that nobody saw, neither its value nor a version that is
// nobody else's, can be done after all others as well, and is left out. What is left
// is then in reach of the checker. So are puts that cannot have written such a version.
func settle(acts []act) []act {
	read, seen := map[string]act{}, map[uint64]bool{} // the first read of each value; the versions told
	for _, a := range acts {
		if a.asked.kind == actGet && a.told.at != 0 {
			if first, ok := read[a.told.value]; !ok || a.ended < first.ended {
				read[a.told.value] = a
			}
		}
		if a.told.known && (a.asked.kind == actGet || a.told.failed) {
			seen[a.told.at] = true
		}
	}
	out := slices.Clone(acts)
	for i := range out {
		a := &out[i]
		switch first, ok := read[a.asked.value]; {
		case a.told.known:
		case a.asked.kind == actPut && ok:
			a.told, a.ended = told{known: true, at: first.told.at}, max(a.began, first.ended)
		default:
			a.ended = math.MaxInt64
		}
		if a.told.known && !a.told.failed {
			delete(seen, a.told.at)
		}
		if a.told.known && a.asked.kind == actGet && a.told.at != 0 {
			delete(seen, a.told.at) // its write is known, or there is none
		}
	}
	delete(seen, 0)
	return leaveOut(out, seen)
}

// leaveOut leaves out the puts of unknown outcome whose value nobody read, but for those
// that can have written the versions that somebody was told of. One can that began
// before anybody was told of the version or a later one, and whose condition, if it has
// any, nobody else's write can have failed. Of puts without a condition those that began
// first will do, as many as there are versions: each could take the place of a later one.
func leaveOut(acts []act, seen map[uint64]bool) []act {
	type bounds struct {
		before uint64        // the version told of that is next below
		by     time.Duration // it was there
	}
	versions := map[uint64]bounds{}
	for v := range seen {
		b := bounds{by: math.MaxInt64}
		for _, a := range acts {
			switch {
			case !a.told.known:
			case a.told.at >= v:
				b.by = min(b.by, a.ended)
			default:
				b.before = max(b.before, a.told.at)
			}
		}
		versions[v] = b
	}
	can := func(a act) bool {
		for v, b := range versions {
			if a.began <= b.by && (a.asked.match == 0 || a.asked.match >= b.before && a.asked.match < v) {
				return true
			}
		}
		return false
	}
	slices.SortStableFunc(acts, func(a, b act) int { return cmp.Compare(a.began, b.began) })
	plain := 0
	return slices.DeleteFunc(acts, func(a act) bool {
		switch {
		case a.told.known || a.asked.kind != actPut:
			return false
		case !can(a):
			return true
		case a.asked.match != 0 || a.asked.absent:
			return false
		}
		plain++
		return plain > len(versions)
	})
}

// judgeRow checks the history of one row.
func judgeRow(acts []act, patience time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(rowModel(), operations(acts), patience)
}

// drawRow draws the history of one row into a file, for a browser.
func drawRow(acts []act, file string) error {
	_, info := porcupine.CheckOperationsVerbose(rowModel(), operations(acts), 10*time.Second)
	return porcupine.VisualizePath(rowModel(), info, file)
}

func operations(acts []act) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, a := range settle(acts) {
		ops = append(ops, porcupine.Operation{
			ClientId: a.client, Input: a.asked, Output: a.told, Call: int64(a.began), Return: int64(a.ended), Metadata: a.why,
		})
	}
	return ops
}
