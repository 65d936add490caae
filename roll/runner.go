package roll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
)

// State is how far a node of a roll is. They come in this order, each is noted
// before it is acted on, and each may be begun again.
type State string

// The states.
const (
	StateCheck      State = "check"       // could the cluster do without it
	StateClaim      State = "claim"       // its drain is claimed
	StateDrain      State = "drain"       // it hands over what it owns
	StateHandedOver State = "handed-over" // it owns nothing
	StatePeersAcked State = "peers-acked" // no other node sends it anything of that any more
	StateStop       State = "stop"        // it is told to restart
	StateStarted    State = "started"     // its peers have met another incarnation
	StateJoined     State = "joined"      // that one has its lease and answers
	StateLevel      State = "level"       // and has caught up with everything
	StateOwnersBack State = "owners-back" // and owns what it should
	StateSettled    State = "settled"     // and stayed so for a while
	StateDone       State = "done"
)

// States returns all states in order.
func States() []State {
	return []State{
		StateCheck, StateClaim, StateDrain, StateHandedOver, StatePeersAcked, StateStop,
		StateStarted, StateJoined, StateLevel, StateOwnersBack, StateSettled, StateDone,
	}
}

// stopped reports whether a node in that state was told to restart.
func (s State) stopped() bool {
	return slices.Index(States(), s) >= slices.Index(States(), StateStop)
}

// Hold is on whose behalf a node is told to do something.
type Hold struct {
	Roll  uint64
	Epoch uint64
	By    string
}

// Cluster is what is rolled. Its methods may be called from any goroutine, and
// return within seconds.
type Cluster interface {
	// View returns the cluster as a quorum of it knows it, not older than the call.
	View(ctx context.Context) (*View, error)
	// Drain claims a node's drain for half a minute, or renews the claim, and
	// returns how many tables it still owns.
	Drain(ctx context.Context, node string, h Hold) (owned int, err error)
	// Undrain ends the claim.
	Undrain(ctx context.Context, node string, h Hold) error
	// Routes returns the nodes that still send requests to a node as an owner.
	Routes(ctx context.Context, node string) ([]string, error)
	// Requests returns what a node counted.
	Requests(ctx context.Context, node string) (api.RequestReport, error)
}

// Journal keeps the lock and what was done; *client.Client is one.
type Journal interface {
	ChangeRoll(ctx context.Context, a api.RollAction, id uint64, c api.RollChange) (api.Roll, error)
}

// Driver stops a node and starts it again.
type Driver interface {
	// Restart has the node restart, or has someone do it. What comes of it is seen
	// by the node's peers, so no error means no more than that it was tried.
	Restart(ctx context.Context, n Node, h Hold) error
}

// Times of a run.
const (
	lookEvery  = 150 * time.Millisecond // between two looks at the cluster
	settleLook = time.Second            // and while nothing should happen, at most
	beat       = 2 * time.Second        // how often the lock and the claims are renewed
	sayEvery   = 5 * time.Second        // how often a wait says how far it is
	ownersSit  = 2 * time.Second        // owners that did not move for so long stay where they are for now
	tries      = 3                      // how often a node is begun again
	fresh      = 5 * time.Second        // for how long a node may be stopped that the checks have let through
	flaps      = 3                      // how often a node that settles may stop being ready
)

// Runner carries a roll out.
type Runner struct {
	Cluster Cluster
	Journal Journal
	Driver  Driver
	Plan    *Plan
	Roll    api.Roll      // taken: its epoch is this runner's
	By      string        // who runs it
	Look    time.Duration // between two looks; 0: lookEvery, or what a wait needs
	Say     func(Event)   // is told what happens, by one goroutine at a time
	// Before and After are called before a node is claimed and after it is done.
	Before, After func(ctx context.Context, node string) error
	// Running says which binary a node runs, for a plan that wants one.
	Running func(ctx context.Context, node string) (sha256 string, err error)
	// Stop asks for a pause at the next place where that is safe.
	Stop <-chan struct{}
	// Unheard says why nobody hears what Say is told any more: then the roll pauses as if
	// that was asked for. nil: that is not known.
	Unheard func() error
	// Canary counts for a cluster that does not; nil: there is none.
	Canary *Canary

	counter  counter
	earlier  earlier    // what came before this run
	saying   sync.Mutex // held while Say is called
	renewing sync.Mutex // held while claims are renewed: none is after its node was stopped
	mu       struct {
		sync.Mutex
		held    map[string]bool // nodes whose claims are to be renewed
		ask     string
		told    string // ask that was said
		why     string // it is asked for; "": somebody said so
		entries map[string]entry
		last    time.Time        // when the last view that counted was begun
		failed  map[string]error // driver's commands that failed, by node
	}
}

// entry is what the journal knows of a node.
type entry struct {
	state State
	data  nodeData
}

// nodeData is noted with a node's states.
type nodeData struct {
	Before string `json:"before"`          // incarnation that is to end
	After  string `json:"after,omitempty"` // and that which came
}

// TroubleError is why a roll paused.
type TroubleError struct {
	Node string // "": of no node
	Why  string
	Hint string // what to do next
}

// Error says what happened.
func (e *TroubleError) Error() string { return e.Why }

// UntoldError is why the journal does not say how a roll ended.
type UntoldError struct {
	Err  error
	Hint string // what to do next
}

// Error says what happened.
func (e *UntoldError) Error() string {
	return fmt.Sprintf("the journal could not be told, and says that the roll goes on: %v", e.Err)
}

// Unwrap returns what the journal answered.
func (e *UntoldError) Unwrap() error { return e.Err }

var (
	// ErrAborted is returned when a roll was aborted on request, and undone.
	ErrAborted = errors.New("the roll was aborted, and no node is kept from owning tables")
	// ErrTaken is returned to a runner whose roll was taken over or unlocked.
	ErrTaken = errors.New("somebody else holds the roll now")
	// errAsked leaves a node before it was stopped, because somebody asked to.
	errAsked = errors.New("asked to stop")
)

// Run rolls every node of the plan that is not done, and returns the report of what
// clients met meanwhile, and in the runs of the roll before this one. The error is a
// *TroubleError when the roll is paused, ErrAborted, ErrTaken, or the cause for which ctx
// ended: then the roll is left as it is, and can be taken over.
func (r *Runner) Run(ctx context.Context) (*Report, error) {
	r.mu.held, r.mu.entries, r.mu.failed = map[string]bool{}, map[string]entry{}, map[string]error{}
	for _, n := range r.Roll.Nodes {
		e := entry{state: State(n.State)}
		if len(n.Data) > 0 {
			if err := json.Unmarshal(n.Data, &e.data); err != nil {
				return nil, fmt.Errorf("read the journal of node %s: %w", n.Node, err)
			}
		}
		r.mu.entries[n.Node] = e
	}
	r.earlier = earlierOf(&r.Roll)
	r.counter.cluster, r.counter.nodes = r.Cluster, r.Plan.Expected()
	r.counter.begin(ctx)
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var g errgroup.Group
	g.Go(func() error { r.keep(run, cancel); return nil })
	g.Go(func() error { r.counter.run(run); return nil })
	err := r.watched(run)
	if errors.Is(context.Cause(run), ErrTaken) {
		err = ErrTaken
	}
	cancel(nil)
	_ = g.Wait() // the functions return no errors
	return r.finish(ctx, err)
}

// finish says in the journal how the roll ended.
func (r *Runner) finish(ctx context.Context, err error) (*Report, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.counter.sample(ctx)
	report := r.counter.report(r.Roll.ID, r.Plan)
	report.Epoch = r.Roll.Epoch
	r.addCanary(report)
	r.earlier.addTo(report)
	if errors.Is(err, ErrTaken) {
		report.Status = "taken"
		return report, err
	}
	end := api.RollChange{Epoch: r.Roll.Epoch, Status: api.RollDone}
	var trouble *TroubleError
	switch {
	case err == nil:
		if c := checkRefused(r.question(nil)); c.Level == Block {
			trouble = &TroubleError{Why: c.Detail, Hint: c.Hint}
			err = trouble
		}
	case errors.Is(err, ErrAborted):
		end.Status, end.Why = api.RollAborted, "asked for"
	case !errors.As(err, &trouble):
		trouble = &TroubleError{Why: err.Error()}
	}
	if trouble != nil {
		end.Status, end.Why = api.RollPaused, trouble.Why
		if trouble.Hint == "" {
			trouble.Hint = "mend it, then go on with `tidal roll resume`, or give up with `tidal roll abort`"
		}
		err = trouble
	}
	report.Status, report.Why = string(end.Status), end.Why
	data, encodeErr := json.Marshal(report)
	if encodeErr != nil {
		return report, errors.Join(err, fmt.Errorf("write the report: %w", encodeErr))
	}
	end.Data, end.Why = data, clip(end.Why, api.MaxRollText)
	if _, endErr := r.Journal.ChangeRoll(ctx, api.RollEnd, r.Roll.ID, end); notHeld(endErr) {
		err = ErrTaken // whatever stopped it here is another's now
	} else if endErr != nil {
		untold := &UntoldError{Err: endErr, Hint: untoldHint(end.Status)}
		if trouble != nil {
			trouble.Hint = untold.Hint
		}
		err = errors.Join(err, untold)
	}
	return report, err
}

// notHeld reports whether the journal answers so who does not hold the roll any more:
// another epoch of it is in force, or it is over and another roll came after it, or so
// many that it was forgotten.
func notHeld(err error) bool {
	return slices.Contains([]api.Code{api.CodeStaleEpoch, api.CodeConflict, api.CodeRollNotFound}, api.CodeOf(err))
}

// untoldHint says what to do about a roll that ended so, and goes on in the journal.
func untoldHint(s api.RollStatus) string {
	next := map[api.RollStatus]string{
		api.RollPaused:  "`tidal roll resume`, from where all nodes can be reached",
		api.RollDone:    "`tidal roll resume`, which finds nothing left to do and notes that",
		api.RollAborted: "`tidal roll abort`",
	}[s]
	return fmt.Sprintf("its lock is free within %s: then %s", api.RollSilence, next)
}

// clip cuts a text to so many bytes between two characters. What is no text, as the
// output of a command may be, is written as it is read in JSON, where it is longer.
func clip(text string, most int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// all rolls batch after batch.
func (r *Runner) all(ctx context.Context) error {
	done := 0
	for {
		rest := r.rest()
		if len(rest) == 0 {
			r.sayTooLate()
			return nil
		}
		if err := r.asked(ctx); err != nil {
			return r.giveUp(ctx, err)
		}
		most := max(r.Plan.Options.MaxUnavailable, 1)
		if p := r.Plan.Options.PauseAfter; p > 0 {
			most = min(most, p-done)
		}
		if most <= 0 {
			return &TroubleError{
				Why:  fmt.Sprintf("--pause-after: %d nodes are done, and %d are left", done, len(rest)),
				Hint: "go on with `tidal roll resume`",
			}
		}
		batch, err := r.choose(ctx, rest, most)
		if err != nil {
			return r.giveUp(ctx, err)
		}
		var g errgroup.Group
		for _, id := range batch {
			g.Go(func() error { return r.node(ctx, id, batch) })
		}
		if err := g.Wait(); err != nil {
			return r.giveUp(ctx, err)
		}
		done += len(batch)
	}
}

// sayTooLate says of what was asked for during the last node that nothing is left to stop.
func (r *Runner) sayTooLate() {
	r.mu.Lock()
	ask := r.mu.ask
	r.mu.Unlock()
	if ask != "" {
		r.say(Event{Event: "note", Note: "asked to " + ask + " when no node was left to roll: all are done"})
	}
}

// giveUp hands back what is claimed and turns an ask into what comes of it.
func (r *Runner) giveUp(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	kept := "" // the last node that could not be given back
	for _, id := range r.holding() {
		r.hold(id, false)
		if undone := r.handBack(ctx, id); undone != nil {
			kept = "node " + id + ": " + r.Plan.notUndone(undone)
			r.say(Event{Event: "note", Node: id, Note: r.Plan.notUndone(undone)})
		}
	}
	if !errors.Is(err, errAsked) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.ask == api.RollAskAbort && kept != "" && r.Plan.Kind == KindGeneric:
		return &TroubleError{Why: "asked to abort, and a node is drained still: " + kept, Hint: "mend its undrain, then `tidal roll abort` once more"}
	case r.mu.ask == api.RollAskAbort:
		return ErrAborted
	case r.mu.why != "":
		return &TroubleError{Why: r.mu.why, Hint: "go on with `tidal roll resume`, or give up with `tidal roll abort`"}
	}
	return &TroubleError{Why: "asked to pause", Hint: "go on with `tidal roll resume`, or give up with `tidal roll abort`"}
}

// rest returns the nodes that are left to roll.
func (r *Runner) rest() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, id := range r.Plan.Rolled() {
		if r.mu.entries[id].state != StateDone {
			out = append(out, id)
		}
	}
	return out
}

// choose picks what is rolled next: nodes that the roll had begun, else the first
// by order, with as many more as may be down together with it, at most so many in all.
func (r *Runner) choose(ctx context.Context, rest []string, most int) ([]string, error) {
	if begun := r.begun(rest); len(begun) > 0 {
		return begun, nil
	}
	var batch []string
	err := r.await(ctx, wait{what: "a view of the cluster", safe: true}, func(v *View) (bool, string, error) {
		batch = r.batch(v, rest, most)
		return true, "", nil
	})
	return batch, err
}

// begun returns which nodes must come before all others: those that were stopped, else those
// of a generic cluster that were drained, since such a drain does not run out.
func (r *Runner) begun(rest []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var stopped, drained []string
	for _, id := range rest {
		switch state := r.mu.entries[id].state; {
		case state.stopped():
			stopped = append(stopped, id)
		case state != "" && state != StateCheck && r.Plan.Kind == KindGeneric:
			drained = append(drained, id)
		}
	}
	if len(stopped) > 0 {
		return stopped
	}
	return drained
}

// batch returns the first of the nodes by order, and others that may go with it.
func (r *Runner) batch(v *View, rest []string, most int) []string {
	order := Order(v, rest)
	batch := order[:1:1]
	for _, id := range order[1:] {
		// The set as a whole must pass.
		set := append(slices.Clone(batch), id)
		if len(set) <= most && len(Blocked(Checks(v, r.question(set)))) == 0 {
			batch = set
		}
	}
	return batch
}

// question asks the gate about nodes now.
func (r *Runner) question(nodes []string) Question {
	q := r.Plan.question(nodes)
	q.Expected, q.Refused = r.Plan.Expected(), r.refused()
	r.mu.Lock()
	q.After = r.mu.last
	r.mu.Unlock()
	return q
}

func (r *Runner) me() Hold { return Hold{Roll: r.Roll.ID, Epoch: r.Roll.Epoch, By: r.By} }

func (r *Runner) say(e Event) {
	e.Roll, e.Time = r.Roll.ID, time.Now().UTC()
	r.saying.Lock()
	defer r.saying.Unlock()
	r.Say(e)
}

// noteTries is how often the journal is told of a state, within the time that the cluster
// may be silent for.
const noteTries = 4

// note writes a node's state into the journal, and then says so. Nothing is done
// whose state the journal has not taken.
func (r *Runner) note(ctx context.Context, node string, s State, d nodeData, text string) error {
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	c := api.RollChange{Epoch: r.Roll.Epoch, Node: node, State: string(s), Note: text, Data: data}
	for range noteTries {
		if err = r.noteOnce(ctx, c); api.CodeOf(err) != api.CodeOutcomeUnknown && !errors.Is(err, context.DeadlineExceeded) {
			break // it has been answered; and the same note twice is one
		}
	}
	switch {
	case notHeld(err):
		return ErrTaken
	case err != nil:
		return &TroubleError{Node: node, Why: fmt.Sprintf("the journal does not take the state %s of node %s: %v", s, node, err)}
	}
	r.mu.Lock()
	r.mu.entries[node] = entry{state: s, data: d}
	r.mu.Unlock()
	r.say(Event{Event: "state", Node: node, State: s, Note: text})
	return nil
}

// noteOnce asks once: whoever was asked may stand still, and the next one not.
func (r *Runner) noteOnce(ctx context.Context, c api.RollChange) error {
	ctx, cancel := context.WithTimeout(ctx, r.Plan.Options.Stall/noteTries)
	defer cancel()
	_, err := r.Journal.ChangeRoll(ctx, api.RollNote, r.Roll.ID, c)
	return err
}

// hold has the claim on a node's drain renewed from now on, or not any more.
func (r *Runner) hold(node string, on bool) { //nolint:revive // on or off is what is said
	r.mu.Lock()
	defer r.mu.Unlock()
	if on {
		r.mu.held[node] = true
	} else {
		delete(r.mu.held, node)
	}
}

func (r *Runner) holding() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for id := range r.mu.held {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// asked returns errAsked if somebody wants the roll to stop, or nobody hears it.
func (r *Runner) asked(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.Stop:
		r.askFor(api.RollAskPause, "")
	default:
	}
	if r.Unheard != nil {
		if err := r.Unheard(); err != nil {
			r.askFor(api.RollAskPause, err.Error())
		}
	}
	r.mu.Lock()
	ask, news := r.mu.ask, r.mu.ask != r.mu.told
	r.mu.told = ask
	r.mu.Unlock()
	if news { // not said where it was asked for: who renews claims waits for no terminal
		r.say(Event{Event: "note", Note: "asked to " + ask + ": a node that was stopped already is finished first"})
	}
	if ask != "" {
		return errAsked
	}
	return nil
}

// askFor notes what is asked for; why is "" if somebody said so.
func (r *Runner) askFor(what, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.ask == "" || what == api.RollAskAbort {
		r.mu.ask, r.mu.why = what, why
	}
}

// keep renews the lock and the claims until ctx ends, and ends the run when the
// roll is somebody else's.
func (r *Runner) keep(ctx context.Context, taken context.CancelCauseFunc) {
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, 2*beat)
		now, err := r.Journal.ChangeRoll(call, api.RollRenew, r.Roll.ID, api.RollChange{Epoch: r.Roll.Epoch})
		cancel()
		switch {
		case notHeld(err):
			taken(ErrTaken)
			return
		case err == nil && now.Ask != "":
			r.askFor(now.Ask, "")
		}
		r.renewClaims(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *Runner) renewClaims(ctx context.Context) {
	if r.Plan.Kind == KindGeneric {
		return // nothing there runs out
	}
	r.renewing.Lock()
	defer r.renewing.Unlock()
	for _, id := range r.holding() {
		call, cancel := context.WithTimeout(ctx, 2*beat)
		_, err := r.Cluster.Drain(call, id, r.me())
		cancel()
		if err != nil && ctx.Err() == nil {
			r.say(Event{Event: "note", Node: id, Note: "its claim could not be renewed: " + err.Error()})
		}
	}
}

// letGo ends the renewing of a node's claim for good: its next run must not be
// claimed by a call that was on its way.
func (r *Runner) letGo(id string) {
	r.renewing.Lock()
	defer r.renewing.Unlock()
	r.hold(id, false)
}
