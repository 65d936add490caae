package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/roll"
	"tidal/roll/generic"
)

// kindTidal is the kind of a cluster that says none.
const kindTidal = "tidal"

// rollJournal is where rolls are kept; *client.Client is the one of tidal.
type rollJournal interface {
	roll.Journal
	Rolls(ctx context.Context) ([]api.Roll, error)
	Roll(ctx context.Context, id uint64) (api.Roll, error)
	Close()
}

// rolledCluster is what is rolled.
type rolledCluster interface {
	roll.Cluster
	roll.Driver
}

// checkKind refuses a kind of cluster that nobody knows, and keys that are of another
// kind.
func (c *clusterContext) checkKind(name, path string) error {
	switch c.Kind {
	case "", kindTidal:
		if keys := c.Keys(); len(keys) > 0 {
			return withHint(withCode(exitConfig, fmt.Errorf("%s: cluster %s has %s, and its kind takes no such keys", path, name, strings.Join(keys, ", "))),
				`add kind = "generic", or take them out`)
		}
		return nil
	case roll.KindGeneric:
		if c.Roll.Driver != "" || c.Roll.Command != "" {
			return withHint(withCode(exitConfig, fmt.Errorf("%s: cluster %s is of kind generic, and roll.driver and roll.command are of tidal", path, name)),
				"the command that restarts its nodes is the key restart of [clusters."+name+"]")
		}
		if len(c.Endpoints) > 0 {
			return withHint(withCode(exitConfig, fmt.Errorf("%s: cluster %s is of kind generic and has endpoints, which are of tidal", path, name)), "its nodes are listed as [clusters."+name+".nodes.ID]")
		}
		return nil
	}
	return withHint(withCode(exitConfig, fmt.Errorf("%s: cluster %s is of kind %q", path, name, c.Kind)), "it is tidal or generic")
}

// rollGeneric begins a command about rolls of a cluster that is not tidal.
func (a *app) rollGeneric(t target, format string, changes bool) (*rolling, error) { //nolint:revive // whether it says first where
	conf, err := generic.Read(t.name, &t.Settings)
	if err != nil {
		return nil, withHint(withCode(exitConfig, fmt.Errorf("cluster %s: %s", t.name, strings.ReplaceAll(err.Error(), "\n", "; "))), "docs/rolling.md has a recipe")
	}
	journal, err := a.journalOf(t, conf)
	if err != nil {
		return nil, err
	}
	probes, err := t.probes()
	if err != nil {
		return nil, err
	}
	if changes {
		a.say("cluster %s, journal in %s", t, journal)
	}
	holds := func(ctx context.Context, h roll.Hold) error {
		_, err := journal.ChangeRoll(ctx, api.RollRenew, h.Roll, api.RollChange{Epoch: h.Epoch})
		return err
	}
	return &rolling{app: a, format: format, cl: journal, tidal: &generic.Cluster{Config: conf, HTTP: probes, Holds: holds}}, nil
}

// namedJournal is a journal that can be told apart from others.
type namedJournal interface {
	rollJournal
	fmt.Stringer
}

// journalOf opens the journal of a cluster that is not tidal: a file beside the
// operator's, if nothing else is said.
func (a *app) journalOf(t target, conf *generic.Config) (namedJournal, error) {
	path, err := a.contextsPath()
	if err != nil {
		return nil, err
	}
	place := conf.Journal
	if place == "" {
		place = filepath.Join("rolls", t.name+".json")
	}
	rest, inTidal := strings.CutPrefix(place, "tidal:")
	if !inTidal {
		if !filepath.IsAbs(place) {
			place = filepath.Join(filepath.Dir(path), place)
		}
		f, fileErr := generic.OpenFile(place)
		return f, withCode(exitConfig, fileErr)
	}
	name, table, _ := strings.Cut(rest, "/")
	file, err := readContexts(path)
	if err != nil {
		return nil, err
	}
	in, ok := file.Clusters[name]
	if !ok || table == "" {
		return nil, withHint(withCode(exitConfig, fmt.Errorf("cluster %s: its journal is %q, and %s has no cluster %q", t.name, conf.Journal, path, name)),
			"want a file, or tidal:CLUSTER/TABLE with one of "+strings.Join(slices.Sorted(maps.Keys(file.Clusters)), ", "))
	}
	cl, err := target{name: name, clusterContext: in}.connect()
	if err != nil {
		return nil, err
	}
	return &generic.Row{Client: cl, Table: table, Key: t.name}, nil
}

// probes returns the client that probes a cluster's nodes. No connection is used
// twice: each look is at what is there now.
func (t target) probes() (*http.Client, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, withCode(exitConfig, fmt.Errorf("read what to trust: %w", err))
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, withCode(exitConfig, fmt.Errorf("%s holds no certificate", t.CA))
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, withCode(exitConfig, fmt.Errorf("read the client certificate: %w", err))
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}, nil
}

// options fits the options of a roll to the kind of its cluster.
func (w *rolling) options(c *cli.Context, o roll.Options) (roll.Options, error) {
	g, ok := w.tidal.(*generic.Cluster)
	if !ok {
		return o, nil
	}
	for _, flag := range []string{"driver", "command", "binary"} {
		if c.IsSet(flag) {
			return o, withHint(usagef("%s: --%s is for clusters of tidal", c.Command.HelpName, flag), "the commands of "+g.Config.Name+" are in the operator's file")
		}
	}
	if o.Version != "" && !g.Config.HasVersion() {
		return o, withHint(usagef("%s: --upgrade-to: the version of a node of %s is not known", c.Command.HelpName, g.Config.Name), "give the cluster a probe: version = {url = …, find = …}")
	}
	if g.Canary() == nil && (c.IsSet("max-refusals") || o.MaxRefusals > 0) {
		err := usagef("%s: --max-refusals: nobody counts what %s refuses", c.Command.HelpName, g.Config.Name)
		if !c.IsSet("max-refusals") {
			err = withCode(exitConfig, fmt.Errorf("cluster %s has roll.max_refusals, and nobody counts what it refuses", g.Config.Name))
		}
		return o, withHint(err, "give the cluster a canary: docs/rolling.md")
	}
	o.Driver, o.Command = roll.KindGeneric, ""
	return o, nil
}

// holder says what else is known of who holds a roll, to be added to a sentence.
func (w *rolling) holder(r *api.Roll) string {
	f, ok := w.cl.(*generic.File)
	if !ok || r.Status != api.RollRunning {
		return ""
	}
	if alive, who := f.Holder(); !alive {
		return "; its operator is gone: " + who
	}
	return ""
}

// lastHeard says what is known of whether the operator of a roll hears what it is asked
// for, to be added to a sentence.
func (w *rolling) lastHeard(r *api.Roll) string {
	silent, _ := r.Alone()
	f, inFile := w.cl.(*generic.File)
	switch {
	case inFile:
		if alive, who := f.Holder(); alive {
			return "; its operator lives: " + who
		}
	case r.Silent == nil:
		return "; whether its operator lives is not known: `tidal roll watch` sees it"
	case silent >= sayAlone:
		return "; nobody has heard its operator for " + silent.Round(time.Second).String()
	}
	return ""
}

// nobodyPauses is an error if nobody is there who could do what was asked for.
func (w *rolling) nobodyPauses(r *api.Roll) error {
	silent, alone := r.Alone()
	if !alone {
		return nil
	}
	why := fmt.Sprintf("nobody has heard %s for %s, and only if it comes back does it pause", r.By, silent.Round(time.Second))
	if w.seesProcess() {
		why = fmt.Sprintf("the process of %s has ended", r.By)
	}
	return withHint(withCode(exitFailed, fmt.Errorf("nobody is there to pause roll %d: %s", r.ID, why)),
		"`tidal roll resume` goes on without it, `tidal roll abort` ends the roll")
}

// seesProcess reports whether the journal knows of an operator whether its process lives,
// and not only for how long nobody has heard it.
func (w *rolling) seesProcess() bool {
	_, ok := w.cl.(*generic.File)
	return ok
}

// prepare fits a runner to the kind of its cluster.
func (w *rolling) prepare(r *roll.Runner) {
	g, ok := w.tidal.(*generic.Cluster)
	if !ok {
		return
	}
	r.Canary = g.Canary()
	for _, n := range r.Roll.Nodes {
		if roll.State(n.State) == roll.StateStop {
			g.Begun(n.Node, r.Plan.Options.Stall)
		}
	}
	now := *r.Plan
	now.Commands = nil
	g.Config.Describe(&now)
	if !slices.Equal(now.Commands, r.Plan.Commands) {
		w.app.say("the commands are those of the operator's file as it is now: the plan had others")
	}
	if now.Canary != r.Plan.Canary {
		w.app.say("%s", otherCanary(r.Plan.Canary, now.Canary))
		r.Plan.Canary = now.Canary // what is asked is what counts
	}
}

// otherCanary says that a plan had another canary than there is now; "" is none.
func otherCanary(was, now string) string {
	switch {
	case now == "":
		return "the operator's file has no canary any more: whether anybody is refused is not known, and --max-refusals holds for nothing"
	case was == "":
		return "the canary is that of the operator's file as it is now: the plan had none, and its failures count from here on"
	}
	return "the canary is that of the operator's file as it is now: the plan had another"
}

// notUndone says what becomes of a node that was not given back.
func (w *rolling) notUndone(node string, err error) string {
	if _, ok := w.tidal.(*generic.Cluster); ok {
		return fmt.Sprintf("node %s was not given back, and nothing else does it: %v", node, err)
	}
	return fmt.Sprintf("the claim on node %s was not given up, and runs out by itself: %v", node, err)
}

// unlocked says what becomes of the nodes of a roll whose lock was taken away.
func (w *rolling) unlocked() string {
	if _, ok := w.tidal.(*generic.Cluster); ok {
		return "a node that it had drained stays so: nothing gives it back but a roll that is not unlocked, and you"
	}
	return fmt.Sprintf("a claim that it held runs out within %s", api.DefaultClaim)
}

// printCommands prints what a plan runs, word for word.
func (w *rolling) printCommands(p *roll.Plan) error {
	if p.Kind != roll.KindGeneric {
		return nil
	}
	rows := make([][]string, 0, len(p.Commands)+1)
	for _, c := range p.Commands {
		rows = append(rows, []string{c.Node, c.What, c.Command})
	}
	if p.Canary != "" {
		rows = append(rows, []string{"-", "canary", p.Canary})
	}
	_, err := io.WriteString(w.app.stdout, "\n")
	return errors.Join(err, w.app.writeTable([]string{"NODE", "WHAT", "COMMAND"}, rows))
}

// printCanary prints the report of a cluster that counts nothing itself.
func (w *rolling) printCanary(r *roll.Report) error {
	if r.Canary == nil {
		w.app.say("roll %d is %s; whether anybody was refused is not known: there was no canary", r.Roll, r.Status)
		return nil
	}
	var rows, failures [][]string
	for _, x := range []struct {
		name string
		p    roll.CanaryPhase
	}{{"before", r.Canary.Before}, {"during", r.Canary.During}, {"after", r.Canary.After}} {
		rows = append(rows, []string{
			x.name, strconv.FormatUint(x.p.Attempts, 10), strconv.FormatUint(x.p.Failed, 10),
			fmt.Sprintf("%d ms", x.p.GapMS), fmt.Sprintf("%d ms", x.p.SlowestMS),
		})
		for _, f := range x.p.Failures {
			failures = append(failures, []string{x.name, strconv.FormatUint(f.Count, 10), f.How})
		}
	}
	err := w.app.writeTable([]string{"CANARY", "ATTEMPTS", "FAILED", "LONGEST GAP", "SLOWEST"}, rows)
	if err == nil && len(failures) > 0 {
		_, err = io.WriteString(w.app.stdout, "\n")
		err = errors.Join(err, w.app.writeTable([]string{"CANARY", "TIMES", "FAILURE"}, failures))
	}
	w.app.say("what the nodes themselves refused is not known: nodes of kind generic count nothing")
	w.app.say("roll %d is %s: %d of %d attempts of the canary failed", r.Roll, r.Status, r.Refused, r.Canary.During.Attempts+r.Canary.After.Attempts)
	return err
}
