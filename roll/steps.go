package roll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidal/node/api"
)

// node takes a node from wherever it is to done.
func (r *Runner) node(ctx context.Context, id string, batch []string) error {
	r.mu.Lock()
	e := r.mu.entries[id]
	r.mu.Unlock()
	stopped := e.state.stopped()
	if e.state == StateStop { // the roll is resumed on it
		err := r.comeBack(ctx, id, &e.data, true)
		if begin, ok := errors.AsType[*againError](err); ok {
			r.say(Event{Event: "note", Node: id, Note: begin.Error()})
			stopped = false
		} else if err != nil {
			return err
		}
	}
	if !stopped {
		var err error
		if e, err = r.stop(ctx, id, batch); err != nil {
			return err
		}
		if err = r.comeBack(ctx, id, &e.data, false); err != nil {
			return err
		}
	}
	return r.confirm(ctx, id, e.data)
}

// againError has a node begun again, and says why.
type againError struct{ why string }

// Error says why.
func (e *againError) Error() string { return e.why + ": it is checked again" }

// stop brings a node to be told to restart, again when its claim runs out on the way.
func (r *Runner) stop(ctx context.Context, id string, batch []string) (entry, error) {
	var begin *againError
	for range tries {
		e, err := r.vacate(ctx, id, batch)
		var again bool
		if begin, again = errors.AsType[*againError](err); !again {
			return e, err
		}
		r.say(Event{Event: "note", Node: id, Note: begin.Error()})
	}
	return entry{}, &TroubleError{Node: id, Why: fmt.Sprintf("node %s was begun %d times, and not stopped; the last time: %s", id, tries, begin.why)}
}

// vacate brings a node to own nothing, and tells it to restart.
func (r *Runner) vacate(ctx context.Context, id string, batch []string) (entry, error) {
	e := entry{}
	if err := r.note(ctx, id, StateCheck, e.data, ""); err != nil {
		return e, err
	}
	at, err := r.pass(ctx, id, batch, r.Plan.answered(id))
	if err != nil {
		return e, err
	}
	if r.Before != nil {
		if err = r.Before(ctx, id); err != nil {
			return e, &TroubleError{Node: id, Why: fmt.Sprintf("the hook before node %s: %v", id, err)}
		}
	}
	e.data.Before = at.Incarnation
	if at.Live() {
		if err = r.empty(ctx, id, e.data); err != nil {
			return e, err
		}
	}
	// The hook and the hand-over took their time.
	if at, err = r.passAgain(ctx, at, batch); err != nil {
		return e, err
	}
	passed := time.Now()
	e.state = StateStop
	if err = r.note(ctx, id, StateStop, e.data, ""); err != nil {
		return e, err
	}
	r.letGo(id)
	err = r.restart(ctx, at, passed, batch, e.data)
	if err != nil && at.Live() {
		r.hold(id, true) // it is still claimed
	}
	return e, err
}

// restart tells a node to restart, again while it is certain that nothing was done. The
// checks have let it through at a moment which may be long ago: the journal, a terminal or
// the node itself may have kept this waiting.
func (r *Runner) restart(ctx context.Context, at Node, passed time.Time, batch []string, d nodeData) error {
	began := time.Now()
	for {
		if time.Since(passed) > fresh {
			if _, err := r.passAgain(ctx, at, batch); err != nil {
				return err
			}
			passed = time.Now()
		}
		err := r.tell(ctx, at)
		if failed, ok := errors.AsType[*CommandError](err); ok {
			return r.commandFailed(at, failed)
		}
		switch code := api.CodeOf(err); {
		case err == nil, code == api.CodeOutcomeUnknown:
			return nil // its peers will tell
		case errors.Is(err, ErrTaken), code == api.CodeStaleEpoch:
			return ErrTaken
		case code == api.CodeClaimed:
			return &againError{"its claim had run out"}
		case code == api.CodeCheckFailed, code == api.CodeNotFound: // it goes on as it is, for certain
			if lost := r.note(ctx, at.ID, StateCheck, d, "it was not restarted"); lost != nil {
				return lost
			}
			return notRestarted(at.ID, err)
		case code != api.CodeNotReady || time.Since(began) > r.Plan.Options.Stall:
			return notRestarted(at.ID, err)
		}
		if !sleep(ctx, 500*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// tell has a node restart, if the roll is this runner's still: not every driver has somebody
// ask for that.
func (r *Runner) tell(ctx context.Context, at Node) error {
	call, cancel := context.WithTimeout(ctx, 2*beat)
	defer cancel()
	_, err := r.Journal.ChangeRoll(call, api.RollRenew, r.Roll.ID, api.RollChange{Epoch: r.Roll.Epoch})
	switch {
	case notHeld(err):
		return ErrTaken
	case err != nil:
		return NothingDone(err)
	}
	return r.Driver.Restart(ctx, at, r.me())
}

// NothingDone makes of an error that came before anything was done to a node one that says
// so, whatever became of what was asked: it may be tried again.
func NothingDone(err error) error {
	if slices.Contains([]api.Code{api.CodeStaleEpoch, api.CodeClaimed, api.CodeNotFound}, api.CodeOf(err)) {
		return err
	}
	return &api.Error{Code: api.CodeNotReady, Message: err.Error()}
}

// commandFailed notes that the command for a node failed. Whether it was restarted all the
// same its peers know, if they knew it before.
func (r *Runner) commandFailed(at Node, failed *CommandError) error {
	if at.Incarnation == "" {
		return &TroubleError{
			Node: at.ID, Why: fmt.Sprintf("the command for node %s failed, and nobody saw before which run of it there was: %v", at.ID, failed),
			Hint: "mend it, then `tidal roll resume`, which checks the node again and restarts it",
		}
	}
	r.say(Event{Event: "note", Node: at.ID, Note: "its command failed; its peers will tell: " + failed.Error()})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.failed[at.ID] = failed
	return nil
}

func notRestarted(id string, err error) error {
	return &TroubleError{Node: id, Why: fmt.Sprintf("node %s was not restarted: %v", id, err)}
}

// pass waits until the gate lets the nodes through, and returns the node in the
// view in which it did. One that has answered and does not answer now may be well, and in
// use, and only this machine not reach it.
func (r *Runner) pass(ctx context.Context, id string, batch []string, answered bool) (Node, error) {
	var at Node
	var blocked []Check
	hidden := false
	err := r.await(ctx, wait{what: "the checks before node " + id, node: id, safe: true}, func(v *View) (bool, string, error) {
		q := r.question(batch)
		if c := checkRefused(q); c.Level == Block { // it does not pass by itself
			return false, "", &TroubleError{Node: id, Why: c.Detail, Hint: c.Hint}
		}
		if blocked = Blocked(Checks(v, q)); len(blocked) > 0 {
			how := blocked[0].Name + ": " + blocked[0].Detail
			if v.silentBeside(batch) {
				return false, "", &blindError{how}
			}
			return false, how, nil
		}
		n, _ := v.Node(id)
		if at, hidden = *n, answered && n.Silent != ""; hidden {
			return false, "", &blindError{fmt.Sprintf("node %s has answered, and does not now: %s", id, n.Silent)}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if v.At.After(r.mu.last) {
			r.mu.last = v.At
		}
		return true, "", nil
	})
	if t, ok := errors.AsType[*TroubleError](err); ok && t.Hint == "" && len(blocked) > 0 {
		t.Why = fmt.Sprintf("check %s blocks node %s: %s", blocked[0].Name, id, blocked[0].Detail)
		t.Hint = blocked[0].Hint + "; then `tidal roll resume`"
	} else if ok && hidden {
		t.Hint = "see why, and whether it can be reached from here; then `tidal roll resume`. To have it restarted as it is, `tidal roll abort` and roll again: the plan takes it as it is then"
	}
	return at, err
}

// passAgain has the checks let through a node that they have let through before, as the same
// incarnation.
func (r *Runner) passAgain(ctx context.Context, was Node, batch []string) (Node, error) {
	at, err := r.pass(ctx, was.ID, batch, was.Live())
	if err == nil && at.Incarnation != was.Incarnation {
		err = &againError{"it is another incarnation by now"}
	}
	return at, err
}

// empty claims a node's drain and waits until it owns nothing and its peers know.
func (r *Runner) empty(ctx context.Context, id string, d nodeData) error {
	if err := r.note(ctx, id, StateClaim, d, ""); err != nil {
		return err
	}
	owned, err := r.Cluster.Drain(ctx, id, r.me())
	switch code := api.CodeOf(err); {
	case code == api.CodeStaleEpoch:
		return ErrTaken
	case err != nil && !notYet(err):
		return &TroubleError{Node: id, Why: fmt.Sprintf("the drain of node %s cannot be claimed: %v", id, err)}
	}
	r.hold(id, true)
	if err = r.note(ctx, id, StateDrain, d, r.Plan.drained(owned)); err != nil {
		return err
	}
	err = r.await(ctx, wait{what: fmt.Sprintf("node %s to hand over what it has", id), node: id, safe: true}, func(v *View) (bool, string, error) {
		return r.handsOver(ctx, id, v)
	})
	if err != nil {
		return err
	}
	if err = r.note(ctx, id, StateHandedOver, d, ""); err != nil {
		return err
	}
	err = r.await(ctx, wait{what: fmt.Sprintf("all nodes to know that node %s owns nothing", id), node: id, safe: true}, func(*View) (bool, string, error) {
		routes, blind := r.Cluster.Routes(ctx, id)
		if blind != nil {
			return false, "", &blindError{blind.Error()}
		}
		return len(routes) == 0, "still sent there by " + strings.Join(routes, ", "), nil
	})
	if err != nil {
		return err
	}
	return r.note(ctx, id, StatePeersAcked, d, r.Plan.notKnown("who sends it requests still"))
}

// handsOver renews the claim on a node's drain, and says how far the hand-over is.
func (r *Runner) handsOver(ctx context.Context, id string, v *View) (done bool, how string, _ error) {
	owned, err := r.Cluster.Drain(ctx, id, r.me())
	n, known := v.Node(id)
	switch {
	case api.CodeOf(err) == api.CodeStaleEpoch:
		return false, "", ErrTaken
	case known && n.Silent != "": // nor whether it leads
		return false, "", &blindError{n.Silent}
	case notYet(err):
		return false, err.Error(), nil
	case err != nil:
		return false, "", &blindError{"it does not answer: " + err.Error()}
	}
	alone := 0 // nobody else can own these
	for i := range v.Tables {
		if t := &v.Tables[i]; len(t.Replicas) == 1 && t.on([]string{id}) {
			alone++
		}
	}
	leads := v.leads(id) && metaVoters(v) > 1
	return owned <= alone && !leads, r.Plan.handing(owned, leads), nil
}

func metaVoters(v *View) int {
	n := 0
	for i := range v.Nodes {
		if v.Nodes[i].MetaVoter {
			n++
		}
	}
	return n
}

// comeBack waits until the peers of a node have met another incarnation of it. When
// a roll is resumed on the node, one that runs as before and does not drain was never
// told, or has refused: an *againError. Of one that nobody saw before nobody knows.
func (r *Runner) comeBack(ctx context.Context, id string, d *nodeData, resumed bool) error {
	err := r.await(ctx, wait{what: fmt.Sprintf("node %s to come back", id), node: id}, func(v *View) (bool, string, error) {
		n, ok := v.Node(id)
		switch {
		case !ok:
			return false, "", &TroubleError{Node: id, Why: fmt.Sprintf("node %s is no member any more", id)}
		case resumed && d.Before == "" && !n.Draining:
			return false, "", &againError{"nobody saw which run of it there was before"}
		case n.Incarnation == "" && n.Silent != "":
			return false, "", &blindError{n.Silent}
		case n.Incarnation == "":
			return false, n.why(), nil
		case n.Incarnation == d.Before && resumed && n.Live() && !n.Draining:
			return false, "", &againError{"it runs as before, and was not restarted"}
		case n.Incarnation == d.Before && n.Silent != "":
			return false, "", &blindError{fmt.Sprintf("its peers know it as %s still, and it does not answer: %s", d.Before, n.Silent)}
		case n.Incarnation == d.Before:
			return false, r.Plan.asBefore(d.Before, n.why()), nil
		}
		d.After = n.Incarnation
		return true, "", nil
	})
	if t, ok := errors.AsType[*TroubleError](err); ok {
		r.mu.Lock()
		if failed := r.mu.failed[id]; failed != nil {
			t.Why += "; its command had failed: " + failed.Error()
		}
		r.mu.Unlock()
		t.Hint = "see its log, and what its supervisor says; when it is back: `tidal roll resume`. No other node is begun before that"
	}
	if err != nil {
		return err
	}
	return r.note(ctx, id, StateStarted, *d, "it is "+d.After)
}

// wanted fails if a node that came back runs something else than the plan wants.
func (r *Runner) wanted(ctx context.Context, id, version string) error {
	if want := r.Plan.Options.Binary; want != "" && r.Running != nil {
		sum, err := r.Running(ctx, id)
		if err != nil {
			return &blindError{"it does not say what it runs: " + err.Error()}
		}
		if sum != want {
			return &TroubleError{
				Node: id, Why: fmt.Sprintf("node %s came back with the binary %.12s (%s), and %.12s is wanted", id, sum, version, want),
				Hint: "its log says why; restart it onto that binary, then `tidal roll resume`, or `tidal roll abort` and roll again",
			}
		}
	}
	if want := r.Plan.Options.Version; want != "" && version == "" {
		return &blindError{"it does not say which version it runs"}
	} else if want != "" && version != want {
		return &TroubleError{
			Node: id, Why: fmt.Sprintf("node %s came back with version %s, and %s is wanted", id, version, want),
			Hint: "put the right binary in its place; then restart it and `tidal roll resume`, or `tidal roll abort` and roll again",
		}
	}
	return nil
}

// same fails if a node that came back is another incarnation by now.
func same(v *View, id string, d nodeData) (*Node, error) {
	n, ok := v.Node(id)
	switch {
	case !ok:
		return nil, &TroubleError{Node: id, Why: fmt.Sprintf("node %s is no member any more", id)}
	case n.Incarnation != "" && n.Incarnation != d.After:
		return nil, &TroubleError{
			Node: id, Why: fmt.Sprintf("node %s does not stay up: it came back as %s, and is %s now", id, d.After, n.Incarnation),
			Hint: "its log says why it ended; then `tidal roll resume`",
		}
	}
	return n, nil
}

// seen is same that is blind to a node which does not answer.
func seen(v *View, id string, d nodeData) (*Node, error) {
	n, err := same(v, id, d)
	if err == nil && n.Silent != "" {
		err = &blindError{n.Silent}
	}
	return n, err
}

// confirm waits until a node that came back is level, owns what it should, and
// stays so.
func (r *Runner) confirm(ctx context.Context, id string, d nodeData) error {
	if d.After == "" { // noted by a runner that did not live to note what came
		if err := r.comeBack(ctx, id, &d, false); err != nil {
			return err
		}
	}
	if err := r.giveBack(ctx, id); err != nil {
		return err
	}
	runs := &runs{id: id, d: &d, wanted: func(n *Node) error { return r.wanted(ctx, id, n.Version) }}
	if r.resumedOn(id) {
		runs.others = flaps
	}
	for _, s := range []struct {
		state State
		what  string
		is    func(v *View, n *Node) (bool, string)
		hint  string
	}{
		{StateJoined, "to have its lease and answer", runs.joined, "its log says why; when it answers: `tidal roll resume`"},
		{StateLevel, "to be level and ready", levelAndReady, "its /health says what it lacks, and `tidal wait level` when it is there; then `tidal roll resume`"},
	} {
		err := r.await(ctx, wait{what: fmt.Sprintf("node %s %s", id, s.what), node: id}, func(v *View) (bool, string, error) {
			return runs.look(v, s.is)
		})
		if t, ok := errors.AsType[*TroubleError](err); ok && t.Hint == "" {
			t.Hint = s.hint
		}
		if err != nil {
			return err
		}
		if err := r.note(ctx, id, s.state, d, ""); err != nil {
			return err
		}
	}
	if err := r.ownersBack(ctx, id, d); err != nil {
		return err
	}
	if err := r.settle(ctx, id, d); err != nil {
		return err
	}
	if r.After != nil {
		if err := r.After(ctx, id); err != nil {
			return &TroubleError{Node: id, Why: fmt.Sprintf("the hook after node %s: %v", id, err)}
		}
	}
	return r.note(ctx, id, StateDone, d, "")
}

// runs follows a node that came back until it is level.
type runs struct {
	id     string
	d      *nodeData
	others int // how many other incarnations of it may come meanwhile
	wanted func(n *Node) error
}

// resumedOn reports whether the roll was resumed on a node that had been stopped. Whoever
// resumes has seen why it did not stay up, or what it ran, and may have restarted it a
// moment ago: its peers hold the lease of a run that is over for seconds.
func (r *Runner) resumedOn(id string) bool {
	at := slices.IndexFunc(r.Roll.Nodes, func(n api.RollNode) bool { return n.Node == id })
	return at >= 0 && State(r.Roll.Nodes[at].State).stopped()
}

// look says whether the node is what is waited for, and runs what it should.
func (x *runs) look(v *View, is func(v *View, n *Node) (bool, string)) (done bool, how string, _ error) {
	if n, ok := v.Node(x.id); ok && x.others > 0 && n.Incarnation != "" && n.Incarnation != x.d.Before && n.Incarnation != x.d.After {
		x.d.After = n.Incarnation
		x.others--
	}
	n, err := seen(v, x.id, *x.d)
	if err != nil {
		return false, "", err
	}
	if done, how = is(v, n); done { // also when the roll is resumed on it
		err = x.wanted(n)
	}
	return done, how, err
}

// joined is met by a node that has its lease and answers; one that somebody may have
// restarted a moment ago, and that drains, is about to end.
func (x *runs) joined(_ *View, n *Node) (done bool, how string) {
	if n.Draining && x.others > 0 {
		return false, "it drains"
	}
	return n.Live(), n.why()
}

func levelAndReady(v *View, n *Node) (done bool, how string) {
	if !n.Ready() {
		return false, n.why()
	}
	var behind []string
	for i := range v.Tables {
		for _, r := range v.Tables[i].Replicas {
			if r.Node == n.ID && !r.Level {
				behind = append(behind, v.Tables[i].Name)
			}
		}
	}
	return len(behind) == 0, "not level in " + names(behind)
}

// ownersBack waits until a node owns the tables whose place it is. Owners that do
// not move stay where they are: that is no trouble.
func (r *Runner) ownersBack(ctx context.Context, id string, d nodeData) error {
	away, least, since := 0, -1, time.Now()
	err := r.await(ctx, wait{what: fmt.Sprintf("node %s to own what it should", id), node: id}, func(v *View) (bool, string, error) {
		if _, err := same(v, id, d); err != nil {
			return false, "", err
		}
		away = 0
		for i := range v.Tables {
			if t := &v.Tables[i]; t.Place == id && t.Owner != id {
				away++
			}
		}
		if least < 0 || away < least {
			least, since = away, time.Now()
		}
		return away == 0 || time.Since(since) > ownersSit, fmt.Sprintf("%d tables have their place there and another owner", away), nil
	})
	if err != nil {
		return err
	}
	text := r.Plan.notKnown("what it should lead")
	if away > 0 {
		text = fmt.Sprintf("%d tables stay where they are for now", away)
	}
	return r.note(ctx, id, StateOwnersBack, d, text)
}

// settle watches a node for a while: it must stay as it is. One that is not ready for
// a moment is watched anew, but not for ever.
func (r *Runner) settle(ctx context.Context, id string, d nodeData) error {
	began, ready, lost := time.Now(), true, 0
	// Each look has every node answer, and most of a roll is spent here.
	calm := min(r.Plan.Options.Settle/10, settleLook)
	err := r.await(ctx, wait{what: fmt.Sprintf("node %s to stay ready", id), node: id, look: calm}, func(v *View) (bool, string, error) {
		n, err := same(v, id, d)
		if err != nil {
			return false, "", err
		}
		if c := checkRefused(r.question([]string{id})); c.Level == Block {
			return false, "", &TroubleError{Node: id, Why: c.Detail, Hint: c.Hint}
		}
		if !n.Ready() {
			if ready {
				lost++
			}
			if began, ready = time.Now(), false; lost > flaps {
				return false, "", &TroubleError{
					Node: id, Why: fmt.Sprintf("node %s does not stay ready: it was %d times, and then was not; the last time: %s", id, lost, n.why()),
					Hint: "its log says why; when it stays ready: `tidal roll resume`",
				}
			}
			return false, "", &blindError{n.why()}
		}
		ready = true
		left := r.Plan.Options.Settle - time.Since(began)
		how := left.Round(time.Second).String() + " to go"
		if lost > 0 {
			how += fmt.Sprintf("; it was not ready %d times meanwhile", lost)
		}
		return left <= 0, how, nil
	})
	if err != nil {
		return err
	}
	return r.note(ctx, id, StateSettled, d, "")
}
