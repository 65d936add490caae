package roll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
)

// KindGeneric is the kind of a cluster that is not tidal. Of its nodes is known
// whether they answer, whether they are ready, and which run of theirs that is:
// nothing of tables, levels, owners and refused requests. They are counted.
const KindGeneric = "generic"

// Unknown is the level of a check whose answer nobody knows. It blocks nothing, and
// is shown, so that nobody takes it for well.
const Unknown Level = "unknown"

// canaryLook is how often it is looked whether a canary has ended its first attempt.
const canaryLook = 50 * time.Millisecond

// A roll that gives up gives back the nodes that it has claimed: those of tidal within
// undrainMost, others by a command, which is tried again so often.
const (
	undrainMost  = 10 * time.Second
	undrainAgain = 500 * time.Millisecond
)

// NotYetError is an answer of a generic cluster's Drain: it goes on, or is tried again.
type NotYetError struct{ How string }

// Error says how far it is.
func (e *NotYetError) Error() string { return e.How }

// countedChecks answers a question about a cluster whose nodes are only counted. The
// names are those of all checks.
func countedChecks(v *View, q Question) []Check {
	view, members := checkView(v, q), checkMembers(v, q)
	if view.Level == OK {
		view.Detail = fmt.Sprintf("of %d nodes, as this machine sees them: what they think of each other is not known", len(v.Nodes))
	} else {
		view.Hint = "see whether the nodes can be reached from here, and what their probes say"
	}
	if same := sameRun(v); view.Level == OK && same != "" {
		view.Level, view.Detail = Warn, same
	}
	if members.Level == OK {
		members.Detail = "those of the configuration: whom the cluster itself counts is not known"
	}
	budget := checkBudget(v, q)
	if budget.Level == Block {
		budget.Hint = "bring it back, or roll it first"
	}
	return []Check{
		view, members, budget,
		unknown("claims", "whether somebody else works on the node"),
		checkCount(v, q),
		unknown("table-quorum", "what a node holds and how level it is: one counts when its probe says that it is ready"),
		unknown("table-single", "whether something depends on this node alone"),
		unknown("owners", "who leads what"),
		unknown("moves", "whether data is on its way"),
		checkRefused(q),
	}
}

// sameRun says so when all nodes are of one incarnation: then it is likely that their
// probe finds something that no restart changes.
func sameRun(v *View) string {
	if len(v.Nodes) < 2 {
		return ""
	}
	first := v.Nodes[0].Incarnation
	if first == "" || slices.ContainsFunc(v.Nodes, func(n Node) bool { return n.Incarnation != first }) {
		return ""
	}
	return fmt.Sprintf("the incarnation of every node is %s: is that something which a restart changes?", first)
}

func unknown(name, what string) Check {
	return Check{Name: name, Level: Unknown, Detail: "not known is " + what}
}

// checkCount asks whether enough nodes would be ready without some.
func checkCount(v *View, q Question) Check {
	var left []string
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.Ready() && !slices.Contains(q.Nodes, n.ID) {
			left = append(left, n.ID)
		}
	}
	c := Check{Name: "quorum", Level: OK, Detail: fmt.Sprintf("%d of %d nodes would be ready, and %d are needed", len(left), len(v.Nodes), v.Quorum)}
	switch {
	case len(left) >= v.Quorum:
	case len(v.Nodes) == 1 && q.AllowUnavailable:
		c.Level, c.Detail = Warn, "the only node is restarted: there is none meanwhile"
	default:
		c.Level = Block
		c.Detail = fmt.Sprintf("without %s %d of %d nodes would be ready (%s), and %d are needed",
			strings.Join(q.Nodes, ", "), len(left), len(v.Nodes), names(left), v.Quorum)
		c.Hint = "bring the others back first"
	}
	return c
}

// canaryRefused is the check of a roll that has a canary, or nothing at all, in the
// place of nodes that count.
func canaryRefused(q Question) Check {
	if !q.Canary {
		return unknown("refused", "whether anybody is refused: the nodes count nothing, and there is no canary")
	}
	c := Check{Name: "refused", Level: OK, Detail: fmt.Sprintf("%d attempts of the canary failed since the roll began", q.Refused)}
	if q.Refused > q.MaxRefusals {
		c.Level = Block
		c.Detail += fmt.Sprintf("; at most %d may", q.MaxRefusals)
		c.Hint = "the report says how they failed; --max-refusals allows more"
	}
	return c
}

// drained says how far a drain is.
func (p *Plan) drained(owned int) string {
	if p.Kind == KindGeneric {
		return ""
	}
	return fmt.Sprintf("it owns %d tables", owned)
}

// handing says how far a hand-over is.
func (p *Plan) handing(owned int, leads bool) string {
	if p.Kind == KindGeneric {
		return "its drain is done, and it leads still, or does not say"
	}
	return fmt.Sprintf("it owns %d tables, and leads the metadata: %t", owned, leads)
}

// asBefore says that a node has not been restarted yet.
func (p *Plan) asBefore(before, why string) string {
	if p.Kind == KindGeneric {
		return fmt.Sprintf("its incarnation is %s still, %s", before, why)
	}
	return fmt.Sprintf("its peers know it as %s still, %s", before, why)
}

// notKnown is noted with states that mean something in a cluster of tidal only.
func (p *Plan) notKnown(text string) string {
	if p.Kind != KindGeneric {
		return ""
	}
	return "not known is " + text
}

// notUndone says what becomes of a claim that could not be given up.
func (p *Plan) notUndone(why error) string {
	if p.Kind == KindGeneric {
		return "it could not be given back, and nothing else does it: " + why.Error()
	}
	return "its claim could not be given up, and runs out by itself: " + why.Error()
}

// notYet reports whether a generic cluster's node is not drained yet.
func notYet(err error) bool {
	_, ok := errors.AsType[*NotYetError](err)
	return ok
}

// giveBack ends the claim on a node's drain. That of tidal dies with the run before,
// but for a late one; a command that failed is tried again.
func (r *Runner) giveBack(ctx context.Context, id string) error {
	err := r.Cluster.Undrain(ctx, id, r.me())
	if notYet(err) {
		err = r.await(ctx, wait{what: fmt.Sprintf("node %s to be given back", id), node: id}, func(v *View) (bool, string, error) {
			again := r.Cluster.Undrain(ctx, id, r.me())
			if n, ok := v.Node(id); ok && notYet(again) {
				return false, again.Error() + "; " + n.why(), nil
			}
			return true, "", again
		})
	}
	if _, paused := errors.AsType[*TroubleError](err); paused || ctx.Err() != nil {
		return err
	}
	if api.CodeOf(err) == api.CodeStaleEpoch {
		return ErrTaken
	}
	return nil
}

// handBack ends the claim on a node that was not stopped. That of tidal runs out by itself;
// a command that fails is tried again for the plan's stall.
func (r *Runner) handBack(ctx context.Context, id string) error {
	if r.Plan.Kind != KindGeneric {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, undrainMost)
		defer cancel()
	}
	for began := time.Now(); ; {
		err := r.Cluster.Undrain(ctx, id, r.me())
		if !notYet(err) || time.Since(began) > r.Plan.Options.Stall || !sleep(ctx, undrainAgain) {
			return err
		}
	}
}

// refused returns how many requests were refused, as the nodes or the canary say.
func (r *Runner) refused() uint64 {
	if r.Canary == nil {
		return r.counter.refused()
	}
	return r.counter.refused() + r.Canary.failed()
}

// watched rolls under the eyes of the canary, which looks for a while before the
// first node and after the last. One that meets nothing good before anything was done
// could prove nothing: the roll does not begin.
func (r *Runner) watched(ctx context.Context) error {
	c := r.Canary
	if c == nil {
		return r.all(ctx)
	}
	life, end := context.WithCancel(ctx)
	var g errgroup.Group
	defer func() { end(); _ = g.Wait() }() // the function returns no error
	c.enter(canaryBefore)
	g.Go(func() error { c.run(life); return nil })
	for began := time.Now(); time.Since(began) < c.Around || c.report().Before.Attempts == 0 && time.Since(began) < r.Plan.Options.Stall; {
		if err := r.asked(ctx); err != nil {
			return r.giveUp(ctx, err)
		}
		if !sleep(ctx, canaryLook) {
			return context.Cause(ctx)
		}
	}
	if before := c.report().Before; before.Attempts == before.Failed {
		how := "none of its attempts ended"
		if len(before.Failures) > 0 {
			how = before.Failures[0].How
		}
		return &TroubleError{
			Why:  fmt.Sprintf("the canary succeeded in none of %d attempts before anything was done: %s", before.Attempts, how),
			Hint: "mend the canary or the cluster, then `tidal roll resume`",
		}
	}
	c.enter(canaryDuring)
	err := r.all(ctx)
	c.enter(canaryAfter)
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < c.Around; {
		if r.asked(ctx) != nil && ctx.Err() == nil { // nothing is left to do, and so nothing to pause
			r.say(Event{Event: "note", Note: fmt.Sprintf("the canary has looked for %s after the last node, and not for %s: asked to stop",
				time.Since(began).Round(canaryLook), c.Around)})
			return nil
		}
		if !sleep(ctx, canaryLook) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// addCanary adds to the report what the canary met, and says what nobody counted.
func (r *Runner) addCanary(report *Report) {
	if report.Kind = r.Plan.Kind; report.Kind == KindGeneric {
		for i := range report.Nodes {
			report.Nodes[i].Unknown = "everything: nodes of kind generic count nothing"
		}
	}
	if r.Canary == nil {
		return
	}
	report.Canary = r.Canary.report()
	report.Refused += r.Canary.failed()
}
