package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/pki"
)

// rotateLook is how often the nodes are asked how far they are.
const rotateLook = 300 * time.Millisecond

func (a *app) certsRotateCommand() *cli.Command {
	force := &cli.BoolFlag{Name: "force", Usage: "do not wait for members that are down; they will need new files by hand"}
	timeout := &cli.StringFlag{Name: "timeout", Usage: "how long to wait in each phase before pausing, a `DURATION`; the soak does not count", Value: "10m0s"}
	return &cli.Command{
		Name:      "rotate",
		Usage:     "put a new authority in the place of the old one, under a running cluster",
		UsageText: "tidal certs rotate --dir DIR [--cluster NAME] [--dry-run] [--soak 1h]",
		Description: "In phases: every node comes to trust both roots; all certificates are signed by the new authority; connections\n" +
			"made under the old one end; the old root is trusted no longer. The next phase begins when every member has shown\n" +
			"that it is through with the last. How far it is the cluster keeps: after whatever happens, run it again.",
		Flags: append(connectFlags(), dirFlag(), force, timeout,
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would be done and what stands in the way, and do nothing"},
			&cli.StringFlag{Name: "soak", Usage: "stay for at least this `DURATION` with both roots trusted and no connection under the old one, as 1h", Value: "0s"},
			outputFlag()),
		Action: a.rotating((*rotation).forward),
		Subcommands: []*cli.Command{
			{
				Name: "status", Usage: "say how far a rotation is, and what stands in the way",
				UsageText: "tidal certs rotate status --dir DIR [--cluster NAME]",
				Flags:     append(connectFlags(), dirFlag(), outputFlag()), Action: a.rotating((*rotation).status),
			},
			{
				Name: "rollback", Usage: "go back to the old authority, until its root is dropped",
				UsageText: "tidal certs rotate rollback --dir DIR [--cluster NAME]",
				Flags:     append(connectFlags(), dirFlag(), force, timeout, outputFlag()), Action: a.rotating((*rotation).back),
			},
		},
	}
}

// rotation is a rotation as this command sees it: the cluster's word, the
// directory, and what the members show.
type rotation struct {
	a     *app
	cl    *client.Client
	dir   string
	files pki.Rotation
	state api.Rotation
	clean time.Time // since when no connection is open under the old authority

	force, dry bool
	most       time.Duration // of waiting in a phase, the soak apart
	soak       time.Duration
	format     string
}

// rotating is the action of a command on a rotation.
func (a *app) rotating(do func(*rotation, context.Context) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if _, err := argsOf(c); err != nil {
			return err
		}
		r, err := a.newRotation(c)
		if err != nil {
			return err
		}
		defer r.cl.Close()
		return do(r, c.Context)
	}
}

func (a *app) newRotation(c *cli.Context) (*rotation, error) {
	format, err := formatOf(c)
	if err != nil {
		return nil, err
	}
	dir, err := dirOf(c)
	if err != nil {
		return nil, err
	}
	r := &rotation{a: a, dir: dir, force: c.Bool("force"), dry: c.Bool("dry-run"), format: format}
	if c.String("timeout") != "" {
		if r.most, err = timeoutOf(c); err != nil {
			return nil, err
		}
	}
	if text := c.String("soak"); text != "" {
		if r.soak, err = time.ParseDuration(text); err != nil || r.soak < 0 {
			return nil, withHint(usagef("certs rotate: --soak is %q", text), "it is a duration, as 30m or 1h")
		}
	}
	if info, statErr := os.Stat(dir); statErr != nil || !info.IsDir() {
		return nil, withHint(withCode(exitConfig, fmt.Errorf("%s is no directory of certificates", dir)), "name the one that tidal certs gen made, with the authority in it")
	}
	if r.cl, err = a.connectToChange(c); err != nil {
		return nil, err
	}
	if r.state, err = r.cl.Rotation(c.Context); err != nil {
		r.cl.Close()
		return nil, fmt.Errorf("ask how far the rotation is: %w", err)
	}
	return r, nil
}

// load reads what the directory holds of the rotation, and refuses another
// rotation's directory.
func (r *rotation) load(ctx context.Context) error {
	var err error
	r.files, err = pki.RotationIn(ctx, r.dir, time.Now())
	if err == nil && r.state.Active() && (r.files.Old != r.state.Old || r.files.New != r.state.New) {
		return withCode(exitRefused, fmt.Errorf("%s holds a rotation to root %.16s, and the cluster is in one to root %.16s", r.dir, r.files.New, r.state.New))
	}
	return err
}

// forward takes a rotation to its end, from wherever it is.
func (r *rotation) forward(ctx context.Context) error {
	if r.dry {
		return r.plan(ctx)
	}
	if r.state.Phase == api.RotateUndo {
		return withHint(withCode(exitRefused, errors.New("the rotation is being undone")), "tidal certs rotate rollback goes on with that")
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	steps := []struct {
		phase, next string
		do          func(context.Context) error
		open        func(context.Context) ([]string, error)
	}{
		{api.RotateTrust, api.RotateIssue, r.startFiles, r.trustsBoth},
		{api.RotateIssue, api.RotateSoak, r.switchFiles, r.usesNew},
		{api.RotateSoak, api.RotateDrop, r.nothing, r.noOldConnection},
		{api.RotateDrop, api.RotateDone, r.endTrust, r.trustsNewAlone},
	}
	for _, s := range steps {
		if r.state.Phase != s.phase {
			continue
		}
		if err := r.through(ctx, s.phase, s.do, s.open); err != nil {
			return err
		}
		if err := r.advance(ctx, s.next); err != nil {
			return err
		}
	}
	return r.finish()
}

// begin makes the new authority and says to the cluster that its rotation begins,
// unless it has begun.
func (r *rotation) begin(ctx context.Context) error {
	if r.state.Active() {
		return r.load(ctx)
	}
	if open, err := r.ready(ctx); err != nil || len(open) > 0 {
		return errors.Join(err, refusedBy(open))
	}
	var err error
	if r.files, err = pki.StartRotation(ctx, r.dir, time.Now()); err != nil {
		return err
	}
	if r.state.New == r.files.New && r.state.Phase == api.RotateDone {
		return nil // the end of the last one, which was killed before it tidied up
	}
	r.state = api.Rotation{Old: r.files.Old, New: r.files.New}
	return r.advance(ctx, api.RotateTrust)
}

func refusedBy(open []string) error {
	if len(open) == 0 {
		return nil
	}
	return withHint(withCode(exitRefused, errors.New(strings.Join(open, "\n"))), "nothing was done")
}

// through takes the step of a phase, which may have been taken, and waits until
// nothing stands in the way of the next.
func (r *rotation) through(ctx context.Context, phase string, do func(context.Context) error, open func(context.Context) ([]string, error)) error {
	if err := do(ctx); err != nil {
		return err
	}
	begun, said := time.Now(), ""
	blocked := begun // since when something else than the soak is waited for
	for {
		left, err := open(ctx)
		if err == nil && len(left) == 0 {
			r.a.say("%s: all members are through, after %s", phase, time.Since(begun).Round(time.Millisecond))
			return nil
		}
		if err != nil {
			left = []string{err.Error()} // nobody can be asked, for the moment
		}
		if now := strings.Join(left, "; "); now != said && time.Since(begun) > 2*time.Second {
			said = now
			r.a.say("%s: waiting: %s", phase, now)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if phase == api.RotateSoak && !r.clean.IsZero() {
			blocked = time.Now()
		}
		// Both: somebody with an old certificate may come again and again.
		if time.Since(blocked) > r.most || time.Since(begun) > r.most+r.soak {
			return withHint(withCode(exitPaused, fmt.Errorf("paused in phase %s: %s", phase, strings.Join(left, "; "))),
				"the cluster serves as before; mend that and run it again, or tidal certs rotate rollback")
		}
		select {
		case <-time.After(rotateLook):
		case <-ctx.Done():
		}
	}
}

func (r *rotation) advance(ctx context.Context, phase string) error {
	next := api.Rotation{Old: r.state.Old, New: r.state.New, Phase: phase}
	if err := r.cl.Rotate(ctx, next); err != nil {
		return fmt.Errorf("enter phase %s: %w", phase, err)
	}
	r.state = next
	return nil
}

func (r *rotation) finish() error {
	retired, err := pki.RetireAuthority(r.dir)
	if err != nil {
		return err
	}
	if r.format == formatJSON {
		return r.a.writeJSON(r.state)
	}
	word := "the new root is trusted alone"
	if r.state.Phase == api.RotateUndone {
		word = "all is as before"
	}
	if _, err = fmt.Fprintf(r.a.stdout, "%s: %s\n", r.state.Phase, word); err != nil {
		return err
	}
	if retired != "" {
		r.a.say("the authority that went is in %s: delete it", retired)
	}
	return nil
}

func (r *rotation) nothing(context.Context) error { return nil }

func (r *rotation) startFiles(ctx context.Context) (err error) {
	r.files, err = pki.StartRotation(ctx, r.dir, time.Now())
	return err
}

func (r *rotation) switchFiles(ctx context.Context) (err error) {
	r.files, err = pki.SwitchAuthority(ctx, r.dir, time.Now())
	return err
}

func (r *rotation) endTrust(ctx context.Context) (err error) {
	r.files, err = pki.EndTrust(ctx, r.dir, time.Now())
	return err
}

// back undoes a rotation.
func (r *rotation) back(ctx context.Context) error {
	if !r.state.Active() {
		return withCode(exitRefused, errors.New("no rotation is under way"))
	}
	if r.state.Phase == api.RotateDrop {
		return withHint(withCode(exitRefused, errors.New("the old root is being dropped: there is no way back to it")), "tidal certs rotate completes the rotation; another one follows it")
	}
	if err := r.load(ctx); err != nil {
		return err
	}
	if r.state.Phase != api.RotateUndo {
		if err := r.advance(ctx, api.RotateUndo); err != nil {
			return err
		}
	}
	undo := func(ctx context.Context) (err error) {
		r.files, err = pki.UndoRotation(ctx, r.dir, time.Now())
		return err
	}
	if err := r.through(ctx, api.RotateUndo, undo, r.usesOld); err != nil {
		return err
	}
	end := func(ctx context.Context) (err error) {
		r.files, err = pki.EndUndo(ctx, r.dir, time.Now())
		return err
	}
	if err := r.through(ctx, api.RotateUndo, end, r.trustsOldAlone); err != nil {
		return err
	}
	if err := r.advance(ctx, api.RotateUndone); err != nil {
		return err
	}
	return r.finish()
}

// rotationStep is a phase of a rotation as --dry-run tells it.
type rotationStep struct {
	Phase string `json:"phase"`
	Does  string `json:"does"`
	Until string `json:"until"` // the next phase begins
}

// plan says what a rotation would do.
func (r *rotation) plan(ctx context.Context) error {
	open, err := r.inTheWay(ctx)
	if err != nil {
		return err
	}
	steps := []rotationStep{
		{api.RotateTrust, "a new authority beside ca/, its root added to bundle.crt", "every member trusts both roots"},
		{api.RotateIssue, "the new authority in ca/, every certificate signed anew with its key", "every member uses its new one"},
		{api.RotateSoak, "nothing", "no connection is open that shows a certificate of the old authority, for " + r.soak.String()},
		{api.RotateDrop, "the old root out of bundle.crt", "no member trusts it"},
	}
	if r.format == formatJSON {
		err = r.a.writeJSON(struct {
			api.Rotation

			Steps   []rotationStep `json:"steps"`
			Waiting []string       `json:"waiting"`
		}{r.state, steps, append([]string{}, open...)})
	} else {
		err = r.printPlan(steps, open)
	}
	if err == nil && len(open) > 0 {
		err = withCode(exitRefused, fmt.Errorf("%d things are in the way now", len(open)))
	}
	return err
}

func (r *rotation) printPlan(steps []rotationStep, open []string) error {
	for i, s := range steps {
		if _, err := fmt.Fprintf(r.a.stdout, "%d. %s: %s; until %s\n", i+1, s.Phase, s.Does, s.Until); err != nil {
			return err
		}
	}
	if r.state.Active() {
		r.a.say("a rotation is in phase %s, and would go on from there", r.state.Phase)
	}
	for _, o := range open {
		r.a.say("in the way: %s", o)
	}
	return nil
}

// inTheWay is what the present phase waits for, or what a rotation would.
func (r *rotation) inTheWay(ctx context.Context) ([]string, error) {
	if !r.state.Active() {
		return r.ready(ctx)
	}
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	switch r.state.Phase {
	case api.RotateTrust:
		return r.trustsBoth(ctx)
	case api.RotateIssue:
		return r.usesNew(ctx)
	case api.RotateSoak:
		return r.noOldConnection(ctx)
	case api.RotateUndo:
		return r.usesOld(ctx)
	}
	return r.trustsNewAlone(ctx)
}

// status says how far a rotation is.
func (r *rotation) status(ctx context.Context) error {
	var open []string
	if r.state.Active() {
		var err error
		if open, err = r.inTheWay(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if r.format == formatJSON {
		return r.a.writeJSON(struct {
			api.Rotation

			Waiting []string `json:"waiting"`
		}{r.state, append([]string{}, open...)})
	}
	if r.state.Phase == "" {
		_, err := fmt.Fprintln(r.a.stdout, "there never was a rotation")
		return err
	}
	if _, err := fmt.Fprintf(r.a.stdout, "phase %s, from root %.16s to root %.16s, by %s\n", r.state.Phase, r.state.Old, r.state.New, orDash(r.state.By)); err != nil {
		return err
	}
	for _, o := range open {
		r.a.say("waiting: %s", o)
	}
	return nil
}
