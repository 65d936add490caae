package generic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
	"tidal/roll"
)

const (
	asksAtOnce      = 10              // nodes that are asked side by side
	drainAgain      = 2 * time.Second // between two tries of a drain that fails
	incarnationText = 80              // bytes of an incarnation
)

// errCountsNothing is what a node says of its requests.
var errCountsNothing = errors.New("nodes of kind generic count nothing")

// SilentError is returned in the place of a view in which no node answers.
type SilentError struct {
	Nodes int
	Why   string // of the first
}

// Error says why.
func (e *SilentError) Error() string {
	return fmt.Sprintf("none of the %d nodes answers: %s", e.Nodes, e.Why)
}

// Cluster is the cluster of a configuration, as roll.Runner sees one.
type Cluster struct {
	Config *Config
	HTTP   *http.Client // for probes
	// Holds fails unless the roll is still whose hold says; asked before anything is
	// done to a node.
	Holds func(ctx context.Context, h roll.Hold) error

	mu struct {
		sync.Mutex
		nodes map[string]*work
	}
}

// work is what was done to a node.
type work struct {
	run     string // which one of the node was seen last
	drained bool
	of      string // the run that was drained: the next one is not
	claimed bool
	failed  string    // how the last drain did
	at      time.Time // and when
	until   time.Time // when a restart that was begun by another is over, whatever becomes of it
	follows bool      // it said last that it does not lead
}

func (c *Cluster) workLocked(id string) *work {
	if c.mu.nodes == nil {
		c.mu.nodes = map[string]*work{}
	}
	if c.mu.nodes[id] == nil {
		c.mu.nodes[id] = &work{}
	}
	return c.mu.nodes[id]
}

// Begun says that somebody else told a node to restart, and did not see what came of
// it. The command may be under way for a while.
func (c *Cluster) Begun(id string, stall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workLocked(id).until = time.Now().Add(min(c.Config.limit, stall/2))
}

func (c *Config) member(id string) (*member, error) {
	for i := range c.members {
		if c.members[i].id == id {
			return &c.members[i], nil
		}
	}
	return nil, fmt.Errorf("there is no node %s in the configuration of cluster %s", id, c.Name)
}

// View implements roll.Cluster: every node is asked. When none answers, that is
// rather this machine's doing.
func (c *Cluster) View(ctx context.Context) (*roll.View, error) {
	cfg := c.Config
	v := &roll.View{
		Kind: roll.KindGeneric, Quorum: cfg.quorum, At: time.Now(), Cluster: cfg.Name, ClusterID: cfg.id, Canary: cfg.asked(),
		Nodes: make([]roll.Node, len(cfg.members)),
	}
	var g errgroup.Group
	g.SetLimit(asksAtOnce)
	for i := range cfg.members {
		g.Go(func() error {
			v.Nodes[i] = c.look(ctx, &cfg.members[i])
			return nil
		})
	}
	_ = g.Wait()                                // the functions return no errors
	if errors.Is(ctx.Err(), context.Canceled) { // out of time are the nodes that did not answer
		return nil, context.Cause(ctx)
	}
	silent := 0
	for i := range v.Nodes {
		if v.Nodes[i].Silent != "" {
			silent++
		}
	}
	if silent == len(v.Nodes) {
		return nil, &SilentError{Nodes: silent, Why: v.Nodes[0].Silent}
	}
	return v, nil
}

// look asks one node.
func (c *Cluster) look(ctx context.Context, m *member) roll.Node {
	cfg := c.Config
	n := roll.Node{ID: m.id, Address: m.vars["host"], Zone: m.zone}
	// What a drain moves away is waited for.
	n.MetaVoter = !cfg.leader.empty() && !cfg.drain.empty()
	c.mu.Lock()
	w := c.workLocked(m.id)
	n.Draining = w.claimed || time.Now().Before(w.until)
	c.mu.Unlock()
	ask := func(p Probe) (string, error) { return p.ask(ctx, c.HTTP, m.vars, cfg.probeLimit) }
	run, err := ask(cfg.incarnation)
	switch {
	case err != nil:
		n.Silent = "its incarnation is not known: " + err.Error()
		return n
	case run == "" || len(run) > incarnationText:
		n.Silent = fmt.Sprintf("its incarnation has %d bytes: want 1 to %d", len(run), incarnationText)
		return n
	}
	n.Incarnation = strings.Join(strings.Fields(run), " ") // in one line
	c.mu.Lock()
	if w.run = n.Incarnation; w.drained && w.of != w.run {
		w.drained = false
	}
	c.mu.Unlock()
	if _, err = ask(cfg.ready); err != nil {
		n.Wrong = []string{"it is not ready: " + err.Error()}
	}
	if !cfg.version.empty() {
		if n.Version, err = ask(cfg.version); err != nil {
			n.Version, n.Wrong = "", append(n.Wrong, "its version is not known: "+err.Error())
		}
	}
	if !cfg.leader.empty() {
		_, err = ask(cfg.leader)
		n.Leads = c.leads(w, err)
	}
	return n
}

// leads says what follows from the answer to whether a node leads. One that does not answer
// may do as before, and lead if it has never said.
func (c *Cluster) leads(w *work, answer error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !noAnswer(answer) {
		w.follows = answer != nil
	}
	return !w.follows
}

// command runs a template for a node. It is not cut off when somebody takes the roll over:
// in the middle it could leave a node stopped.
func (c *Cluster) command(ctx context.Context, t Template, m *member, h roll.Hold) error {
	_, err := roll.Process{
		Argv: t.argv(m.vars), Limit: c.Config.limit,
		Env: []string{"TIDAL_NODE=" + m.id, fmt.Sprintf("TIDAL_ROLL=%d", h.Roll), fmt.Sprintf("TIDAL_EPOCH=%d", h.Epoch)},
	}.Run(context.WithoutCancel(ctx))
	return err
}

func exit(err error) string {
	if failed, ok := errors.AsType[*roll.CommandError](err); ok {
		return stable(failed.Exit())
	}
	return err.Error()
}

// Drain implements roll.Cluster: the command is run until it succeeds once, and then
// the probe until the node is empty. Unlike with tidal, nothing ends the drain but
// Undrain.
func (c *Cluster) Drain(ctx context.Context, id string, h roll.Hold) (int, error) {
	m, err := c.Config.member(id)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	w := c.workLocked(id)
	w.claimed = true
	drained, of, failed, at := w.drained || c.Config.drain.empty(), w.run, w.failed, w.at
	c.mu.Unlock()
	if !drained {
		if failed != "" && time.Since(at) < drainAgain {
			return 0, &roll.NotYetError{How: failed}
		}
		if err = c.Holds(ctx, h); err != nil {
			return 0, err
		}
		err = c.command(ctx, c.Config.drain, m, h)
		c.mu.Lock()
		w.drained, w.of, w.failed, w.at = err == nil, of, "", time.Now()
		if err != nil {
			w.failed = "its drain failed: " + exit(err)
		}
		failed = w.failed
		c.mu.Unlock()
		if err != nil {
			return 0, &roll.NotYetError{How: failed}
		}
	}
	if c.Config.drained.empty() {
		return 0, nil
	}
	if _, err = c.Config.drained.ask(ctx, c.HTTP, m.vars, c.Config.probeLimit); err != nil {
		return 0, &roll.NotYetError{How: "it is not drained: " + err.Error()}
	}
	return 0, nil
}

// Undrain implements roll.Cluster.
func (c *Cluster) Undrain(ctx context.Context, id string, h roll.Hold) error {
	m, err := c.Config.member(id)
	if err != nil {
		return err
	}
	if !c.Config.undrain.empty() {
		if err = c.Holds(ctx, h); api.CodeOf(err) == api.CodeStaleEpoch {
			return err
		} else if err != nil {
			return &roll.NotYetError{How: "the journal does not say whose roll it is: " + err.Error()}
		}
		if err = c.command(ctx, c.Config.undrain, m, h); err != nil {
			return &roll.NotYetError{How: "its undrain failed: " + exit(err)}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.workLocked(id)
	*w = work{run: w.run, follows: w.follows}
	return nil
}

// Restart implements roll.Driver.
func (c *Cluster) Restart(ctx context.Context, n roll.Node, h roll.Hold) error {
	m, err := c.Config.member(n.ID)
	if err != nil {
		return err
	}
	if err = c.Holds(ctx, h); err != nil {
		return roll.NothingDone(err)
	}
	return c.command(ctx, c.Config.restart, m, h)
}

// Routes implements roll.Cluster: who sends to a node is not known.
func (c *Cluster) Routes(context.Context, string) ([]string, error) { return nil, nil }

// Requests implements roll.Cluster.
func (c *Cluster) Requests(context.Context, string) (api.RequestReport, error) {
	return api.RequestReport{}, errCountsNothing
}

// Canary returns the configuration's canary; nil: it has none.
func (c *Cluster) Canary() *roll.Canary {
	cfg := c.Config
	if cfg.canary.empty() {
		return nil
	}
	return &roll.Canary{Every: cfg.every, Around: cfg.canaryAround, Attempt: func(ctx context.Context, n uint64) string {
		_, err := roll.Process{Argv: cfg.canary.argv(attempt(n)), Limit: cfg.canaryLimit}.Run(ctx)
		if err == nil {
			return ""
		}
		return exit(err)
	}}
}
