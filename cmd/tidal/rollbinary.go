package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/roll"
)

// readBinary reads the file of --binary, nil if there is none, and notes in the options
// which one that is.
func readBinary(c *cli.Context, o *roll.Options) (*roll.Binary, error) {
	path := c.String("binary")
	if path == "" {
		return nil, nil
	}
	if o.Driver == roll.KindGeneric {
		return nil, errOtherKind(c)
	}
	if o.Driver != roll.DriverInPlace {
		return nil, withHint(usagef("%s: --binary goes with --driver inplace, and not with %s", c.Command.HelpName, o.Driver),
			"put the binary where the old one is, on every node, and roll with --upgrade-to")
	}
	b, err := roll.ReadBinary(path)
	if err != nil {
		return nil, withHint(withCode(exitConfig, err), "--binary names the file of a tidal, of the release that the nodes are to run")
	}
	o.Binary = b.SHA256
	return b, nil
}

// stage has every node that the plan rolls check the plan's binary, and get it if b is
// it. It notes which version that is. A plan for a version alone has them check what
// stands at their paths.
func (w *rolling) stage(c *cli.Context, p *roll.Plan, b *roll.Binary) error {
	if p.Options.Binary == "" {
		return w.checkInstalled(c, p)
	}
	version := ""
	err := w.own().Stage(c.Context, p.Rolled(), p.Options.Binary, b, func(s roll.Staged) {
		version = s.Version
		w.app.say("node %s: %s", s.Node, stagedText(s))
	})
	if err != nil {
		return withCode(exitRefused, fmt.Errorf("no node was stopped: %w", err))
	}
	if want := p.Options.Version; want != "" && want != version {
		return withCode(exitRefused, fmt.Errorf("no node was stopped: the binary is %s, and --upgrade-to says %s", version, want))
	}
	p.Options.Version = version
	return nil
}

func (w *rolling) checkInstalled(c *cli.Context, p *roll.Plan) error {
	if w.own() == nil || p.Options.Version == "" || p.Options.Driver != roll.DriverInPlace {
		return nil
	}
	err := w.own().CheckInstalled(c.Context, p.Rolled(), p.Options.Version, func(s roll.Staged) {
		w.app.say("node %s: %s", s.Node, stagedText(s))
	})
	if err != nil {
		return withCode(exitRefused, fmt.Errorf("no node was stopped: %w", err))
	}
	return nil
}

func stagedText(s roll.Staged) string {
	switch {
	case s.Problem != "":
		return "what stands at its path is not checked: " + s.Problem
	case s.Sent:
		return s.Version + " was sent, and can run it"
	}
	return s.Version + " is there already, and can run it"
}

// own returns the cluster of a command about rolls, nil if it is not tidal.
func (w *rolling) own() *roll.Tidal {
	t, _ := w.tidal.(*roll.Tidal) // nil of another kind
	return t
}

func errOtherKind(c *cli.Context) error {
	return withHint(usagef("%s: only nodes of tidal take binaries", c.Command.HelpName), "put the binary there yourself, and roll")
}

// sayLevel says how an upgrade ends, if the new release brings more than the cluster
// uses yet.
func (w *rolling) sayLevel(ctx context.Context) {
	if l, err := w.own().Client.Level(ctx); err == nil && l.Possible > l.Level { // else it is said at the next occasion
		w.app.say("the cluster uses feature level %d, and every member speaks %d: `tidal cluster finalize` goes there, `tidal roll rollback` goes back", l.Level, l.Possible)
	}
}

func (a *app) rollStage(c *cli.Context) error {
	o := roll.Options{Driver: roll.DriverInPlace}
	b, err := readBinary(c, &o)
	if err == nil && b == nil {
		err = withHint(usagef("%s: --binary is missing", c.Command.HelpName), "tidal roll stage --binary FILE")
	}
	if err != nil {
		return err
	}
	w, err := a.rollOn(c, true)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	if w.own() == nil {
		return errOtherKind(c)
	}
	v, err := w.tidal.View(c.Context)
	if err != nil {
		return fmt.Errorf("look at the cluster: %w", err)
	}
	var all []roll.Staged
	if err = w.own().Stage(c.Context, v.IDs(), b.SHA256, b, func(s roll.Staged) { all = append(all, s) }); err != nil {
		return withCode(exitRefused, err)
	}
	slices.SortFunc(all, func(x, y roll.Staged) int { return strings.Compare(x.Node, y.Node) })
	if w.format == formatJSON {
		return a.writeJSON(map[string]any{"staged": all})
	}
	rows := make([][]string, 0, len(all))
	for _, s := range all {
		rows = append(rows, []string{s.Node, s.Version, s.Levels.String(), s.SHA256[:12], s.Path})
	}
	return a.writeTable([]string{"NODE", "VERSION", "SPEAKS", "SHA256", "PATH"}, rows)
}

// rollBack rolls every node that runs what the last upgrade brought to what it ran
// before.
func (a *app) rollBack(c *cli.Context) error {
	for _, name := range []string{"binary", "upgrade-to"} {
		if c.IsSet(name) {
			return usagef("%s: it takes no --%s: the nodes know what they ran before", c.Command.HelpName, name)
		}
	}
	o, err := a.rollOptions(c)
	if err != nil {
		return err
	}
	if o.Driver != roll.DriverInPlace {
		return withHint(usagef("%s: only nodes that restart in place keep what they ran before, and the driver is %s", c.Command.HelpName, o.Driver),
			"put the old binary back on every node, and roll with --upgrade-to")
	}
	w, err := a.rollOn(c, true)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	if w.own() == nil {
		return errOtherKind(c)
	}
	return w.start(c, nil, func() (*roll.Plan, error) {
		if err := w.before(c, &o); err != nil {
			return nil, err
		}
		return w.plan(c.Context, o, nil)
	})
}

// before notes in the options which binary the nodes ran before the last upgrade.
func (w *rolling) before(c *cli.Context, o *roll.Options) error {
	v, err := w.tidal.View(c.Context)
	if err != nil {
		return fmt.Errorf("look at the cluster: %w", err)
	}
	all, problems := w.own().Ask(c.Context, v)
	for _, id := range v.IDs() {
		if err = problems[id]; err != nil {
			return withHint(withCode(exitRefused, fmt.Errorf("what node %s ran before is not known: %w", id, err)),
				"if its new binary does not start, put the one with .previous behind its name back in its place there, and start the node")
		}
	}
	upgrade, err := w.lastUpgrade(c.Context, all)
	if err != nil {
		return err
	}
	now := upgrade.Options.Binary
	versions := map[string]string{} // by hash
	var kept []string
	none := false // some keep none
	for _, id := range v.IDs() {
		p := all[id]
		switch has := keeps(&p); {
		case p.Running.SHA256 != now:
		case has == nil:
			none = true
			kept = append(kept, "node "+id+" keeps none")
		default:
			versions[has.SHA256] = has.Version
			kept = append(kept, fmt.Sprintf("node %s keeps %s (%.12s)", id, has.Version, has.SHA256))
		}
	}
	if len(kept) == 0 {
		return fmt.Errorf("there is nothing to roll back: no node runs %s (%.12s), the binary of the last upgrade", upgrade.Options.Version, now)
	}
	if len(versions) != 1 || none {
		return withHint(withCode(exitRefused, fmt.Errorf("the nodes do not all keep the same binary of before: %s", firstFew(kept))), "roll to the one that you want: tidal roll --binary FILE")
	}
	for sum, version := range versions {
		o.Binary, o.Version, o.Back = sum, version, true
	}
	return nil
}

// lastUpgrade returns the plan of the last roll to another binary. After a way back
// that is the way back, whose way back leads forward again; but one that is not through
// on every node is gone on with, so that what it has left is what it undid.
func (w *rolling) lastUpgrade(ctx context.Context, all map[string]api.Programs) (*roll.Plan, error) {
	list, err := w.cl.Rolls(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the rolls: %w", err)
	}
	for _, brief := range list {
		r, err := w.cl.Roll(ctx, brief.ID)
		if api.CodeOf(err) == api.CodeRollNotFound {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("look at roll %d: %w", brief.ID, err)
		}
		p, err := planOf(&r)
		if err != nil {
			return nil, err
		}
		if sum := p.Options.Binary; sum != "" && (!p.Options.Back || everywhere(all, sum)) {
			return p, nil
		}
	}
	return nil, withHint(withCode(exitRefused, errors.New("there is nothing to roll back: no roll that is remembered brought another binary")),
		"tidal roll history lists them; roll to the binary that you want: tidal roll --binary FILE")
}

// keeps returns the binary that a node ran before the one that it runs, nil if it keeps
// none. Where nodes share a path, the first that went back has put it there for all.
func keeps(p *api.Programs) *api.Program {
	for _, x := range []*api.Program{p.Previous, p.Installed} {
		if x != nil && x.SHA256 != p.Running.SHA256 {
			return x
		}
	}
	return nil
}

// everywhere reports whether every node runs a binary.
func everywhere(all map[string]api.Programs, sum string) bool {
	for _, p := range all {
		if p.Running.SHA256 != sum {
			return false
		}
	}
	return true
}
