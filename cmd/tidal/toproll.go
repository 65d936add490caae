package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/roll"
	"tidal/tui"
)

// topRoller lets tidal top roll: as tidal roll does without flags, and without writing
// on the screen.
type topRoller struct {
	w     *rolling
	flags func() (roll.Options, error)
	mu    struct {
		sync.Mutex
		run *topRun // that goes on, or the last
	}
}

// topRun is a roll that is carried out beside the screen.
type topRun struct {
	id     uint64
	stop   chan struct{} // closed: it is to pause
	once   sync.Once
	done   chan struct{} // closed at its end; what is below does not change then
	report *roll.Report
	err    error
	mu     struct {
		sync.Mutex
		doing string
	}
}

func newTopRoller(a *app, c *cli.Context, cl *client.Client) *topRoller {
	return &topRoller{
		w:     &rolling{app: a, format: formatTable, cl: cl, tidal: &roll.Tidal{Client: cl}},
		flags: func() (roll.Options, error) { return a.defaultRoll(c) },
	}
}

// defaultRoll returns the options of tidal roll without a flag.
func (a *app) defaultRoll(c *cli.Context) (roll.Options, error) {
	t, err := a.target(c)
	if err != nil {
		return roll.Options{}, err
	}
	set := flag.NewFlagSet("roll", flag.ContinueOnError)
	for _, f := range rollFlags() {
		if err = f.Apply(set); err != nil {
			return roll.Options{}, err
		}
	}
	return optionsOf(cli.NewContext(c.App, set, nil), t.Roll)
}

// plan makes a plan that nothing blocks.
func (t *topRoller) plan(ctx context.Context) (*roll.Plan, error) {
	o, err := t.flags()
	if err == nil {
		err = byHand(o)
	}
	if err != nil {
		return nil, err
	}
	p, err := t.w.plan(ctx, o, nil)
	if err != nil {
		return nil, err
	}
	return p, blocked(p)
}

// byHand refuses a roll that has something to tell: here is no line for it.
func byHand(o roll.Options) error {
	if o.Driver == roll.DriverManual {
		return errors.New("somebody restarts its nodes by hand, and is told on a line of their own when: tidal roll, or tidal roll resume")
	}
	return nil
}

// Plan implements tui.Roller.
func (t *topRoller) Plan(ctx context.Context) (tui.RollPlan, error) {
	p, err := t.plan(ctx)
	if err != nil {
		return tui.RollPlan{}, err
	}
	out := tui.RollPlan{Nodes: p.Rolled()}
	for _, c := range p.Checks {
		if c.Level == roll.Warn {
			out.Notes = append(out.Notes, "check "+c.Name+": "+c.Detail)
		}
	}
	return out, nil
}

// Start implements tui.Roller.
func (t *topRoller) Start(ctx context.Context) (string, error) {
	p, err := t.plan(ctx)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	r, err := t.w.cl.ChangeRoll(ctx, api.RollStart, 0, api.RollChange{By: claimant(), Data: data})
	if err != nil {
		return "", lockError(fmt.Errorf("begin the roll: %w", err))
	}
	t.begin(ctx, r, p)
	return fmt.Sprintf("roll %d has begun", r.ID), nil
}

// Resume implements tui.Roller.
func (t *topRoller) Resume(ctx context.Context, id, epoch uint64) (string, error) {
	r, err := t.w.cl.Roll(ctx, id)
	if err != nil {
		return "", fmt.Errorf("find the roll: %w", err)
	}
	p, err := planOf(&r)
	if err != nil {
		return "", err
	}
	if err = byHand(p.Options); err != nil {
		return "", err
	}
	r, err = t.w.cl.ChangeRoll(ctx, api.RollTake, id, api.RollChange{Epoch: epoch, By: claimant()})
	if err != nil {
		return "", lockError(fmt.Errorf("resume the roll: %w", err))
	}
	t.begin(ctx, r, p)
	return fmt.Sprintf("roll %d goes on", r.ID), nil
}

// Pause implements tui.Roller.
func (t *topRoller) Pause(ctx context.Context, id uint64) (string, error) {
	if run := t.running(); run != nil && run.id == id {
		run.pause()
	} else if _, err := t.w.cl.ChangeRoll(ctx, api.RollAsk, id, api.RollChange{Ask: api.RollAskPause}); err != nil {
		return "", fmt.Errorf("pause the roll: %w", err)
	}
	return fmt.Sprintf("roll %d pauses as soon as that is safe", id), nil
}

// Running implements tui.Roller.
func (t *topRoller) Running() (id uint64, doing string) {
	run := t.running()
	if run == nil {
		return 0, ""
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.id, run.mu.doing
}

// running returns the roll that goes on here, nil if none does.
func (t *topRoller) running() *topRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	run := t.mu.run
	if run == nil {
		return nil
	}
	select {
	case <-run.done:
		return nil
	default:
		return run
	}
}

// begin carries a roll out beside the screen.
func (t *topRoller) begin(ctx context.Context, r api.Roll, p *roll.Plan) {
	run := &topRun{id: r.ID, stop: make(chan struct{}), done: make(chan struct{})}
	runner := t.w.runner(r, p)
	runner.Driver = t.w.driver(&rollShown{rolling: t.w}, p)
	runner.Say, runner.Stop = run.say, run.stop
	t.mu.Lock()
	t.mu.run = run
	t.mu.Unlock()
	go func() {
		defer close(run.done)
		run.report, run.err = runner.Run(context.WithoutCancel(ctx)) // the screen's end pauses it; see leave
	}()
}

func (run *topRun) pause() { run.once.Do(func() { close(run.stop) }) }

// say keeps what the roll does now.
func (run *topRun) say(e roll.Event) {
	text := e.Note
	if e.Event == "state" {
		text = strings.TrimSpace(string(e.State) + " " + e.Note)
	}
	if e.Node != "" {
		text = "node " + e.Node + ": " + text
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.mu.doing = text
}

// leave pauses the roll that goes on here, waits until it has, and says what came of it,
// as of any that was carried out here. A signal meanwhile ends the waiting: then the
// roll stands where it is, and can be resumed once its lock has run out. After a signal
// that ended the screen, the next one ends the process anyway.
func (t *topRoller) leave(ctx context.Context) error {
	t.mu.Lock()
	run := t.mu.run
	t.mu.Unlock()
	if run == nil {
		return nil
	}
	if t.running() != nil {
		run.pause()
		t.w.app.say("roll %d pauses at the next place where that is safe", run.id)
		signal := ctx.Done()
		if ctx.Err() != nil {
			signal = nil
		}
		select {
		case <-run.done:
		case <-signal:
			return withHint(withCode(exitInterrupted, fmt.Errorf("roll %d is left where it is", run.id)), "tidal roll resume")
		}
	}
	if run.report != nil {
		if err := t.w.printReport(run.report); err != nil {
			return err
		}
	}
	return rollError(run.id, run.err)
}
