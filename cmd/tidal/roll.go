package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/roll"
	"tidal/roll/generic"
)

func (a *app) rollCommand() *cli.Command {
	id := func() []cli.Flag { return append(connectFlags(), outputFlag()) }
	return &cli.Command{
		Name:      "roll",
		Usage:     "restart the nodes one after the other, and prove that nobody noticed",
		UsageText: "tidal roll [--yes] [--only NODE] [--settle 10s] [-o json]\ntidal roll plan [--out FILE]\ntidal roll --plan FILE",
		Description: "Before each node it checks whether every table can do without it; after each it waits until the node is\n" +
			"back, level, and owns what it should. When something is wrong it pauses and ends with 8: it never forces, and\n" +
			"never goes on to a second node. At the end it says what clients were refused, and how long they waited.\n" +
			"Ctrl-C pauses at the next place where that is safe; a second one leaves at once.",
		Flags:  append(rollFlags(), &cli.BoolFlag{Name: "yes", Usage: "do not ask"}, &cli.StringFlag{Name: "plan", Usage: "`FILE` with the plan to carry out, by the flags that it was made with; refused when the cluster is not as it was"}),
		Action: a.rollStart,
		Subcommands: []*cli.Command{
			{
				Name: "plan", Usage: "say what a roll would do, and whether anything blocks it; change nothing",
				Flags:  append(rollFlags(), &cli.StringFlag{Name: "out", Usage: "write the plan to `FILE` too"}),
				Action: a.rollPlan,
			},
			{Name: "status", Usage: "say how far the newest roll is", Flags: id(), Action: a.rollStatus},
			{
				Name: "watch", Usage: "follow the newest roll until it ends", Flags: id(), Action: a.rollWatch,
				Description: "It ends with 0 when the roll is done, 8 when it is paused, 11 when it was aborted.",
			},
			{Name: "pause", Usage: "ask whoever rolls to pause at the next safe place", Flags: id(), Action: a.rollPause},
			{
				Name: "resume", Usage: "go on with a roll that is paused, or whose operator is gone", Action: a.rollResume,
				Flags: append(id(), &cli.BoolFlag{Name: "force", Usage: "also if its operator is alive: its word counts no more then"}),
			},
			{Name: "abort", Usage: "end a roll: nodes that were not restarted yet take their tables back", Flags: id(), Action: a.rollAbort},
			{
				Name: "rollback", Usage: "roll the nodes back to the binary that they ran before the last --binary", Action: a.rollBack,
				Flags: append(rollFlags(), &cli.BoolFlag{Name: "yes", Usage: "do not ask"}),
				Description: "It is a roll like any other: to what each node has kept beside its binary. After `tidal cluster finalize` an\n" +
					"older release cannot read the cluster's data any more: it is refused before anything is stopped.",
			},
			{
				Name: "stage", Usage: "send a binary to every node and have it checked there; restart nothing", Action: a.rollStage,
				Flags: append(id(), binaryFlag()),
			},
			{Name: "history", Usage: "list the last rolls", Flags: id(), Action: a.rollHistory},
			{Name: "show", Usage: "show a roll's plan, journal and report", UsageText: "tidal roll show [ID]", Flags: id(), Action: a.rollShow},
			{
				Name: "unlock", Usage: "take the lock away from a roll, whatever it is doing", Action: a.rollUnlock,
				Flags: append(id(), &cli.BoolFlag{Name: "yes", Usage: "do not ask"}, &cli.StringFlag{Name: "reason", Usage: "`TEXT` for the history"}),
			},
		},
	}
}

// rolling is a command about rolls at work.
type rolling struct {
	app    *app
	format string
	cl     rollJournal
	tidal  rolledCluster
}

// rollOn begins a command about rolls.
func (a *app) rollOn(c *cli.Context, changes bool, args ...string) (*rolling, error) { //nolint:revive // whether it says first where
	if _, err := argsOf(c, args...); err != nil {
		return nil, err
	}
	format, err := formatOf(c)
	if err != nil {
		return nil, err
	}
	t, err := a.target(c)
	if err != nil {
		return nil, err
	}
	if t.Kind == roll.KindGeneric {
		return a.rollGeneric(t, format, changes)
	}
	connect := a.connect
	if changes {
		connect = a.connectToChange
	}
	cl, err := connect(c)
	if err != nil {
		return nil, err
	}
	return &rolling{app: a, format: format, cl: cl, tidal: &roll.Tidal{Client: cl}}, nil
}

// rollWith begins a command that makes a plan: by these options, and with this binary
// to send, nil for none.
func (a *app) rollWith(c *cli.Context, changes bool) (*rolling, roll.Options, *roll.Binary, error) { //nolint:revive // as rollOn; all are wanted together
	o, err := a.rollOptions(c)
	if err != nil {
		return nil, o, nil, err
	}
	w, err := a.rollOn(c, changes)
	if err != nil {
		return nil, o, nil, err
	}
	var b *roll.Binary
	if o, err = w.options(c, o); err == nil {
		b, err = readBinary(c, &o)
	}
	if err != nil {
		w.cl.Close()
		return nil, o, nil, err
	}
	return w, o, b, nil
}

func (a *app) rollPlan(c *cli.Context) error {
	w, o, b, err := a.rollWith(c, false)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	p, err := w.plan(c.Context, o, b)
	if err != nil {
		return err
	}
	if out := c.String("out"); out != "" {
		var text []byte
		if text, err = json.MarshalIndent(p, "", "  "); err != nil {
			return err
		}
		if err = replaceFile(out, append(text, '\n')); err != nil {
			return withCode(exitConfig, fmt.Errorf("write the plan: %w", err))
		}
	}
	if w.format == formatJSON {
		err = a.writeJSON(p)
	} else {
		err = w.printPlan(p)
	}
	if err != nil {
		return err
	}
	return blocked(p)
}

// plan looks at the cluster and makes a plan; b is the binary that is to be sent.
func (w *rolling) plan(ctx context.Context, o roll.Options, b *roll.Binary) (*roll.Plan, error) {
	v, err := w.tidal.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the cluster: %w", err)
	}
	return w.planOn(ctx, v, o, b)
}

// planOn makes a plan for a view.
func (w *rolling) planOn(ctx context.Context, v *roll.View, o roll.Options, b *roll.Binary) (*roll.Plan, error) {
	var checks []func(p *roll.Plan) roll.Check
	own := w.own()
	if own != nil && (o.Binary != "" || o.Version != "") {
		all, problems := own.Ask(ctx, v)
		checks = append(checks, func(p *roll.Plan) roll.Check { return roll.CheckBinary(p, b, all, problems) })
	}
	if own != nil && o.Driver == roll.DriverExec {
		d := &roll.Exec{Command: o.Command, Cluster: own, Limit: o.Limit()}
		checks = append(checks, func(p *roll.Plan) roll.Check { return d.CheckKillTime(ctx, p.Pick(v)) })
	}
	p, err := roll.NewPlan(v, o)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	for _, check := range checks {
		p.Checks = append(p.Checks, check(p))
	}
	if g, ok := w.tidal.(*generic.Cluster); ok {
		g.Config.Describe(p)
	}
	return p, nil
}

// blocked is an error if a check blocks the plan.
func blocked(p *roll.Plan) error {
	all := roll.Blocked(p.Checks)
	if len(all) == 0 {
		return nil
	}
	first := all[0]
	return withHint(withCode(exitRefused, fmt.Errorf("check %s blocks the roll: %s", first.Name, first.Detail)), first.Hint)
}

func (a *app) rollStart(c *cli.Context) error {
	if err := aloneWithPlan(c); err != nil {
		return err
	}
	w, o, b, err := a.rollWith(c, true)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	return w.start(c, b, func() (*roll.Plan, error) { return w.chosen(c, o, b) })
}

// start makes a plan, shows it, asks, sends the binary that it needs, and carries it
// out.
func (w *rolling) start(c *cli.Context, b *roll.Binary, plan func() (*roll.Plan, error)) error {
	// Who holds the lock is said before what blocks: it may be the cause of that.
	if last, lastErr := w.cl.Roll(c.Context, 0); lastErr == nil && last.Status.Open() {
		return w.notBegun(lockError(&api.Error{
			Code: api.CodeRollLocked, Message: fmt.Sprintf("roll %d of %s is %s, and only one roll goes on at a time%s", last.ID, last.By, last.Status, w.holder(&last)),
		}))
	}
	p, err := plan()
	if err != nil {
		return w.notBegun(err)
	}
	if w.format != formatJSON {
		if err = w.printPlan(p); err != nil {
			return err
		}
	}
	if err = blocked(p); err != nil {
		return w.notBegun(err)
	}
	if len(p.Rolled()) == 0 {
		w.app.say("there is nothing to roll")
		return w.notBegun(nil)
	}
	if err = w.app.confirm(c, fmt.Sprintf("%d of %d nodes of cluster %s will be restarted, at most %d at a time.",
		len(p.Rolled()), len(p.Nodes), p.Cluster, max(p.Options.MaxUnavailable, 1)), p.Cluster); err != nil {
		return w.notBegun(err)
	}
	if err = w.stage(c, p, b); err != nil {
		return w.notBegun(err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	r, err := w.cl.ChangeRoll(c.Context, api.RollStart, 0, api.RollChange{By: claimant(), Data: data})
	if err != nil {
		return w.notBegun(lockError(fmt.Errorf("begin the roll: %w", err)))
	}
	return w.run(c.Context, r, p)
}

// chosen returns the plan of --plan if the cluster is still as it says, or a new one.
func (w *rolling) chosen(c *cli.Context, o roll.Options, b *roll.Binary) (*roll.Plan, error) {
	path := c.String("plan")
	if path == "" {
		return w.plan(c.Context, o, b)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, withCode(exitConfig, fmt.Errorf("read the plan: %w", err))
	}
	var saved roll.Plan
	if err = json.Unmarshal(text, &saved); err != nil {
		return nil, withHint(withCode(exitConfig, fmt.Errorf("%s is no plan: %w", path, err)), "tidal roll plan --out FILE writes one")
	}
	v, err := w.tidal.View(c.Context)
	if err != nil {
		return nil, fmt.Errorf("look at the cluster: %w", err)
	}
	if changes := saved.Changes(v); len(changes) > 0 {
		return nil, withHint(withCode(exitRefused, fmt.Errorf("the cluster is not as it was when the plan was made: %s", firstFew(changes))),
			"make a new plan: tidal roll plan --out "+path)
	}
	return w.planOn(c.Context, v, saved.Options, nil) // the checks are those of now
}

func firstFew(list []string) string {
	more := ""
	if n := len(list) - maxReasons; n > 0 {
		list, more = list[:maxReasons], fmt.Sprintf("; and %d more", n)
	}
	return strings.Join(list, "; ") + more
}

// lockError gives the errors of the lock their exit code and hint.
func lockError(err error) error {
	if api.CodeOf(err) == api.CodeRollLocked {
		return withHint(withCode(exitLocked, err), "`tidal roll status` says how far it is; `tidal roll resume`, `abort` and `unlock` end it")
	}
	if api.CodeOf(err) == api.CodeStaleEpoch {
		return withCode(exitLocked, err)
	}
	if api.CodeOf(err) == api.CodeConflict { // it has ended a moment ago
		return withCode(exitFailed, err)
	}
	return err
}

// run carries a roll out, and says what comes of it.
func (w *rolling) run(ctx context.Context, r api.Roll, p *roll.Plan) error {
	terminal := isTerminal(w.app.stderr)
	gone := &listener{}
	w.app = gone.listen(w.app)
	defer gone.end()
	shown := &rollShown{rolling: w, terminal: terminal}
	runner := w.runner(r, p)
	runner.Driver, runner.Say, runner.Stop, runner.Unheard = w.driver(shown, p), shown.event, ctx.Done(), gone.gone
	w.app.say("roll %d, epoch %d, by %s", r.ID, r.Epoch, r.By)
	w.prepare(runner)
	report, err := runner.Run(context.WithoutCancel(ctx)) // a signal pauses it; see Stop
	shown.clear()
	var printErr error
	if report != nil {
		printErr = w.printReport(report)
	}
	if err == nil && p.Options.Binary != "" {
		w.sayLevel(ctx)
	}
	if err != nil {
		return rollError(r.ID, err) // it says so, if it is why nothing could be printed
	}
	return printErr
}

// runner returns who carries a roll out, but for its driver, and what it says and heeds.
func (w *rolling) runner(r api.Roll, p *roll.Plan) *roll.Runner {
	out := &roll.Runner{
		Cluster: w.tidal, Journal: w.cl, Plan: p, Roll: r, By: r.By,
		Before: hook(p.Options.HookBefore, p.Options.Limit(), r.ID), After: hook(p.Options.HookAfter, p.Options.Limit(), r.ID),
	}
	if own := w.own(); own != nil {
		own.Binary, out.Running = p.Options.Binary, own.Running
	}
	return out
}

// driver returns who restarts the nodes.
func (w *rolling) driver(shown *rollShown, p *roll.Plan) roll.Driver {
	switch p.Options.Driver {
	case roll.DriverExec:
		return &roll.Exec{Command: p.Options.Command, Cluster: w.tidal, Limit: p.Options.Limit()}
	case roll.DriverManual:
		return &roll.Manual{Tell: shown.tell}
	}
	return w.tidal
}

// rollError gives what ended a roll its exit code.
func rollError(id uint64, err error) error {
	trouble, paused := errors.AsType[*roll.TroubleError](err)
	untold, isUntold := errors.AsType[*roll.UntoldError](err)
	switch {
	case err == nil:
		return nil
	case paused:
		return withHint(withCode(exitPaused, fmt.Errorf("roll %d is paused: %w", id, err)), trouble.Hint)
	case isUntold && errors.Is(err, roll.ErrAborted):
		return withHint(withCode(exitAborted, fmt.Errorf("roll %d: %w", id, err)), untold.Hint)
	case isUntold:
		return withHint(fmt.Errorf("roll %d is done: %w", id, err), untold.Hint)
	case errors.Is(err, roll.ErrAborted):
		return withCode(exitAborted, fmt.Errorf("roll %d: %w", id, err))
	case errors.Is(err, roll.ErrTaken):
		return withHint(withCode(exitLocked, fmt.Errorf("roll %d: %w: this command stops here, and has done nothing since", id, err)), "tidal roll status")
	}
	return fmt.Errorf("roll %d: %w", id, err)
}

// hook returns what runs a command for a node; nil for none.
func hook(command string, limit time.Duration, id uint64) func(context.Context, string) error {
	if command == "" {
		return nil
	}
	return func(ctx context.Context, node string) error {
		return roll.Shell(ctx, limit, command, "TIDAL_NODE="+node, fmt.Sprintf("TIDAL_ROLL=%d", id))
	}
}

// openRoll begins a command that does something to the roll which holds the lock. Where
// none does the answer of every such command is the same.
func (a *app) openRoll(c *cli.Context, verb string) (*rolling, api.Roll, error) {
	w, err := a.rollOn(c, true)
	if err != nil {
		return nil, api.Roll{}, err
	}
	r, err := w.cl.Roll(c.Context, 0)
	if err != nil {
		err = fmt.Errorf("find the roll: %w", err)
	} else if !r.Status.Open() {
		err = nothingTo(verb, r)
	}
	if err != nil {
		w.cl.Close()
		return nil, r, w.notBegun(err)
	}
	return w, r, nil
}

func nothingTo(verb string, r api.Roll) error {
	return withHint(withCode(exitFailed, fmt.Errorf("there is nothing to %s: roll %d is %s", verb, r.ID, r.Status)), "`tidal roll history` lists the last rolls")
}

func (a *app) rollResume(c *cli.Context) error {
	w, r, err := a.openRoll(c, "resume")
	if err != nil {
		return err
	}
	defer w.cl.Close()
	p, err := w.resumable(&r)
	if err != nil {
		return w.notBegun(err)
	}
	r, err = w.cl.ChangeRoll(c.Context, api.RollTake, r.ID, api.RollChange{Epoch: r.Epoch, By: claimant(), Force: c.Bool("force")})
	if err != nil {
		err = lockError(fmt.Errorf("resume the roll: %w", err))
		if api.CodeOf(err) == api.CodeRollLocked {
			err = withHint(err, "`tidal roll watch` shows what it does, `tidal roll pause` asks it to stop; if it is not to go on, `tidal roll resume --force` takes over at once")
		}
		return w.notBegun(err)
	}
	return w.run(c.Context, r, p)
}

// resumable returns the plan of a roll, if it is one for this cluster. That is asked before
// the roll is taken: who had it could go on with it. The journal of a cluster of tidal is
// its own; others may be told to share one.
func (w *rolling) resumable(r *api.Roll) (*roll.Plan, error) {
	p, err := planOf(r)
	if err != nil {
		return nil, withHint(err, "resume it with the release that began it, or end it: tidal roll abort")
	}
	if g, ok := w.tidal.(*generic.Cluster); ok && p.Cluster != g.Config.Name {
		return nil, withHint(withCode(exitRefused, fmt.Errorf("roll %d is of cluster %s, and this is %s: both keep their rolls in one journal", r.ID, p.Cluster, g.Config.Name)),
			"tidal roll resume --cluster "+p.Cluster+"; and give each cluster a journal of its own")
	}
	return p, nil
}

func planOf(r *api.Roll) (*roll.Plan, error) {
	p := &roll.Plan{}
	if err := json.Unmarshal(r.Plan, p); err != nil {
		return nil, fmt.Errorf("the plan of roll %d cannot be read: %w", r.ID, err)
	}
	return p, nil
}

func (a *app) rollPause(c *cli.Context) error {
	w, r, err := a.openRoll(c, "pause")
	if err != nil {
		return err
	}
	defer w.cl.Close()
	if r.Status == api.RollPaused {
		a.say("roll %d is paused already", r.ID)
		return w.printRolls([]api.Roll{r})
	}
	before := r
	if r, err = w.cl.ChangeRoll(c.Context, api.RollAsk, r.ID, api.RollChange{Ask: api.RollAskPause}); err != nil {
		return lockError(fmt.Errorf("pause the roll: %w", err))
	}
	r.Silent = before.Silent // of whoever was asked: who asks is not heard as that one
	if _, alone := r.Alone(); !alone {
		a.say("roll %d pauses as soon as that is safe: `tidal roll watch` shows when%s", r.ID, w.lastHeard(&r))
	}
	return errors.Join(w.printRolls([]api.Roll{r}), w.nobodyPauses(&r))
}

func (a *app) rollAbort(c *cli.Context) error {
	w, r, err := a.openRoll(c, "abort")
	if err != nil {
		return err
	}
	defer w.cl.Close()
	if r.Status == api.RollRunning {
		if r, err = w.askToAbort(c.Context, r); err != nil {
			return err
		}
	}
	if r.Status.Open() {
		if err = w.undo(c.Context, r); err != nil {
			return lockError(fmt.Errorf("abort roll %d: %w", r.ID, err))
		}
	}
	if r, err = w.cl.Roll(c.Context, r.ID); err != nil {
		return err
	}
	a.say("roll %d is %s", r.ID, r.Status)
	return w.printRolls([]api.Roll{r})
}

// askToAbort asks the roll's operator, and waits until it has, or is silent for so
// long that the roll may be taken from it.
func (w *rolling) askToAbort(ctx context.Context, r api.Roll) (api.Roll, error) {
	if _, err := w.cl.ChangeRoll(ctx, api.RollAsk, r.ID, api.RollChange{Ask: api.RollAskAbort}); err != nil && api.CodeOf(err) != api.CodeConflict {
		return r, fmt.Errorf("ask %s to abort: %w", r.By, err)
	}
	w.app.say("%s is asked to abort, and finishes the node that it has in hand", r.By)
	err := waitFor(ctx, 10*time.Minute, time.Second, func(ctx context.Context) error {
		now, err := w.cl.Roll(ctx, r.ID)
		if err != nil {
			return err
		}
		r = now
		if r.Status != api.RollRunning {
			return nil
		}
		// Taken only if its operator is silent.
		taken, err := w.cl.ChangeRoll(ctx, api.RollTake, r.ID, api.RollChange{Epoch: r.Epoch, By: claimant()})
		if err == nil {
			r = taken
			return nil
		}
		return fmt.Errorf("%s has not aborted yet", r.By)
	})
	return r, err
}

// undo takes an open roll, if it is not this command's, and ends it with every
// claim given up. What its operator has counted stays. A roll one of whose claims is not
// given up, and does not run out by itself, stays paused.
func (w *rolling) undo(ctx context.Context, r api.Roll) error {
	by := claimant()
	if r.Status == api.RollPaused || r.By != by {
		taken, err := w.cl.ChangeRoll(ctx, api.RollTake, r.ID, api.RollChange{Epoch: r.Epoch, By: by})
		if err != nil {
			return err
		}
		r = taken
	}
	kept := strings.Join(w.giveBack(ctx, &r, by), ", ")
	r.Status, r.Why = api.RollAborted, "asked for by "+by
	var err error
	if kept != "" && w.own() == nil {
		r.Status, r.Why = api.RollPaused, "asked to abort by "+by+", and drained still is "+kept
		err = withHint(withCode(exitPaused, fmt.Errorf("it is paused: drained still is %s", kept)), "mend its undrain, then `tidal roll abort` once more")
	}
	if lost := ownReport(&r); lost != nil { // which keeps no roll from being aborted
		w.app.say("the report of the last pause is lost: %v", lost)
		r.Report = nil
	}
	_, endErr := w.cl.ChangeRoll(ctx, api.RollEnd, r.ID, api.RollChange{Epoch: r.Epoch, Status: r.Status, Why: r.Why, Data: r.Report})
	return errors.Join(err, endErr)
}

// giveBack gives up the claims of a roll, and returns the nodes whose claim it could not.
func (w *rolling) giveBack(ctx context.Context, r *api.Roll, by string) []string {
	var kept []string
	for _, n := range r.Nodes {
		if roll.State(n.State) == roll.StateDone {
			continue
		}
		if err := w.tidal.Undrain(ctx, n.Node, roll.Hold{Roll: r.ID, Epoch: r.Epoch, By: by}); err != nil {
			w.app.say("%s", w.notUndone(n.Node, err))
			kept = append(kept, n.Node)
		}
	}
	return kept
}

func (a *app) rollUnlock(c *cli.Context) error {
	w, r, err := a.openRoll(c, "unlock")
	if err != nil {
		return err
	}
	defer w.cl.Close()
	what := fmt.Sprintf("Roll %d of %s (%s) ends wherever it is, and its operator can do nothing more.", r.ID, r.By, r.Status)
	if err = a.confirm(c, what, strconv.FormatUint(r.ID, 10)); err != nil {
		return err
	}
	why := "unlocked by " + claimant()
	if reason := c.String("reason"); reason != "" {
		why += ": " + reason
	}
	if r, err = w.cl.ChangeRoll(c.Context, api.RollUnlock, r.ID, api.RollChange{By: claimant(), Why: why}); err != nil {
		return lockError(fmt.Errorf("unlock: %w", err))
	}
	a.say("roll %d is aborted; %s", r.ID, w.unlocked())
	return w.printRolls([]api.Roll{r})
}
