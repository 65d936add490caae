package roll

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// wait is what await waits for.
type wait struct {
	what string
	node string
	safe bool // it may be left when somebody asks to stop

	look time.Duration // between two looks; 0: as elsewhere
}

// await looks at the cluster until f is done with it. f says how far things are;
// when it has said nothing new for the plan's stall, the wait fails. Slow is not stuck,
// and to and fro is not slow.
func (r *Runner) await(ctx context.Context, w wait, f func(v *View) (done bool, how string, err error)) error {
	stall, look := r.Plan.Options.Stall, r.Look
	if look == 0 {
		look = max(w.look, lookEvery)
	}
	p, said := progress{moved: time.Now(), least: map[string][]float64{}}, time.Now()
	for {
		if err := r.asked(ctx); err != nil && (w.safe || !errors.Is(err, errAsked)) {
			return err
		}
		began := time.Now()
		done, err := r.lookAt(ctx, &p, f)
		if done || err != nil {
			return err
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			r.say(Event{Event: "wait", Node: w.node, Note: w.what + ": " + p.how})
		}
		if time.Since(p.moved) > stall {
			return &TroubleError{Node: w.node, Why: fmt.Sprintf("waited for %s, and nothing moved for %s: %s", w.what, stall, p.how)}
		}
		rest, slept := max(look, time.Since(began)), time.Now() // at most half of the time goes into looking
		if !sleep(ctx, rest) {
			return context.Cause(ctx)
		}
		if lost := time.Since(slept) - rest; lost > time.Second { // this process stood still, and not the cluster
			p.moved = p.moved.Add(lost)
		}
	}
}

// progress is how far a wait is. It moves when something is seen that was not seen before in
// this wait, or one of its numbers is the least yet: what is left to do falls. Others change
// for ever, as ports, times and counts do.
type progress struct {
	how   string // for people
	moved time.Time
	least map[string][]float64 // of each text, but for its numbers
}

func (p *progress) note(how string) {
	if how == "" {
		return
	}
	p.how = how
	text, numbers := apart(how)
	least, seen := p.least[text]
	if !seen {
		p.least[text], p.moved = numbers, time.Now()
		return
	}
	for i, n := range numbers {
		if n < least[i] {
			least[i], p.moved = n, time.Now()
		}
	}
}

// apart returns a text without its numbers, and those. Digits of a name are none.
func apart(text string) (string, []float64) {
	var numbers []float64
	rest := regexp.MustCompile(`[\pL_-]?[\pL\d_-]*\d+(\.\d+)?`).ReplaceAllStringFunc(text, func(word string) string {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return word
		}
		numbers = append(numbers, n)
		return "0"
	})
	return rest, numbers
}

// blindError is why nothing can be seen. That is no progress, however its words
// change from one look to the next.
type blindError struct{ why string }

// Error says why.
func (e *blindError) Error() string { return e.why }

// lookAt shows f the cluster once.
func (r *Runner) lookAt(ctx context.Context, p *progress, f func(v *View) (done bool, how string, err error)) (bool, error) {
	call, cancel := context.WithTimeout(ctx, r.Plan.Options.Stall)
	defer cancel()
	v, err := r.Cluster.View(call)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case err != nil:
		p.how = "incomplete view: " + err.Error()
		return false, nil
	}
	done, how, err := f(v)
	if blind, ok := errors.AsType[*blindError](err); ok {
		p.how = blind.why
		return false, nil
	}
	p.note(how)
	if err == nil && !done && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return done, err
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
