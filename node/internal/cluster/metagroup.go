package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// machine lets the host drive the meta group's state machine. It belongs to the
// host's loop.
type machine struct {
	c     *Cluster
	state *meta.State
	dirty bool
}

// Apply implements rafthost.Machine.
func (m *machine) Apply(b *store.Batch, e rafthost.Entry) ([16]byte, any, error) {
	res, err := m.state.Apply(e.Index, e.Data)
	if err != nil {
		return [16]byte{}, nil, err
	}
	if err = m.c.speaks(m.state.View()); err != nil {
		return [16]byte{}, nil, fmt.Errorf("meta entry %d: %w", e.Index, err)
	}
	writeMeta(b, res.Changes)
	m.dirty = m.dirty || len(res.Changes) > 0
	if !res.Withdrawn.IsZero() {
		m.c.withdrawn.note(res.Withdrawn)
	}
	return res.ID, &res.Answer, nil
}

// Flush implements rafthost.Machine. Each change was written by itself.
func (m *machine) Flush(*store.Batch) {}

// Committed implements rafthost.Machine.
func (m *machine) Committed() {
	if m.dirty {
		m.dirty = false
		m.c.view.Store(m.state.View())
		m.c.changed.fire()
	}
}

func metaKey(key []byte) []byte {
	return append(store.GroupKey(uint64(api.MetaGroup), store.SubState), key...)
}

func writeMeta(b *store.Batch, changes []meta.Change) {
	for _, ch := range changes {
		if ch.Value == nil {
			b.Delete(metaKey(ch.Key))
		} else {
			b.Set(metaKey(ch.Key), ch.Value)
		}
	}
}

// loadMeta reads the state from the disk; of a node that was just accepted, it is
// the state of a cluster that forms now, and its records are returned.
func (c *Cluster) loadMeta(f *wire.Formation) (*meta.State, []meta.Change, error) {
	state, err := ReadMeta(c.o.DB)
	if err != nil {
		return nil, nil, err
	}
	if !state.View().Formation.ClusterID.IsZero() {
		return state, nil, c.speaks(state.View())
	}
	first, err := state.Genesis(*f)
	return state, first, err
}

// speaks is an error if this release does not speak the level of a state: it could
// misread what comes after.
func (c *Cluster) speaks(v *meta.View) error {
	if c.o.Levels.Speaks(v.Level) {
		return nil
	}
	e := meta.LevelError(c.o.Node, c.o.Version, c.o.Levels, v.Level)
	return fmt.Errorf("%w: %s: %s", wire.ErrNewer, e.Message, e.Hint)
}

// ReadMeta reads the meta group's state from a node's database; of none, it is the
// state of no cluster.
func ReadMeta(db *store.DB) (*meta.State, error) {
	var scanErr error
	records := func(yield func(k, v []byte) bool) {
		lo := metaKey(nil)
		scanErr = db.Scan(lo, store.GroupEnd(uint64(api.MetaGroup), store.SubState), func(k, v []byte) error {
			if !yield(append([]byte(nil), k[len(lo):]...), append([]byte(nil), v...)) {
				return store.ErrStop
			}
			return nil
		})
	}
	state, err := meta.Load(iter.Seq2[[]byte, []byte](records))
	return state, errors.Join(scanErr, err)
}

// openMeta opens the meta group's replica, or makes it when the cluster forms.
func (c *Cluster) openMeta(ctx context.Context) error {
	f := c.formation()
	state, first, err := c.loadMeta(f)
	if err != nil {
		return fmt.Errorf("meta group: %w", err)
	}
	v := state.View()
	own := c.ownReplica()
	if own == 0 {
		return fmt.Errorf("meta group: node %s is not among the members of cluster %s", c.o.Node, f.ClusterID)
	}
	g := rafthost.GroupOptions{
		Vital: true,
		Group: uint64(api.MetaGroup), Replica: own, Nodes: metaNodes(v.Members),
		Machine: &machine{c: c, state: state}, Gauge: &c.gauge,
		First:    func(b *store.Batch) { writeMeta(b, first) },
		Arrive:   func() rafthost.Arriving { return &arriving{c: c} },
		Restless: true, // every node acts on what it says, at once
	}
	for _, m := range f.Members {
		g.Voters = append(g.Voters, f.Replica(m.Node))
	}
	c.view.Store(v)
	if err := c.o.Host.Add(ctx, g); err != nil {
		return fmt.Errorf("meta group: %w", err)
	}
	close(c.ready)
	c.changed.fire()
	return nil
}

// arriving is the meta group's state that comes as a snapshot.
type arriving struct {
	c       *Cluster
	records [][2][]byte
	state   *meta.State
}

// Add implements rafthost.Arriving.
func (a *arriving) Add(key, value []byte) error {
	a.records = append(a.records, [2][]byte{slices.Clone(key[1:]), slices.Clone(value)})
	return nil
}

// Done implements rafthost.Arriving.
func (a *arriving) Done() (err error) {
	a.state, err = meta.Load(func(yield func(k, v []byte) bool) {
		for _, r := range a.records {
			if !yield(r[0], r[1]) {
				return
			}
		}
	})
	a.records = nil
	if err == nil {
		err = a.c.speaks(a.state.View())
	}
	if err != nil {
		return fmt.Errorf("meta group: %w", err)
	}
	return nil
}

// Machine implements rafthost.Arriving.
func (a *arriving) Machine() (rafthost.Machine, error) {
	a.c.view.Store(a.state.View())
	a.c.changed.fire()
	return &machine{c: a.c, state: a.state}, nil
}

// Observe takes what the host tells of a group. It is called from the host's
// loop and must not wait.
func (c *Cluster) Observe(e rafthost.Event) {
	if e.Group == uint64(api.MetaGroup) {
		s, was := e.State, c.metaNow.Load()
		if s.Owns && !was.Owns {
			c.leases.reset() // before anybody sees that it leads
			c.rolls.reset(time.Now())
		}
		c.metaNow.Store(&s)
	} else if c.directory.own(api.TableID(e.Group), e.State) {
		c.o.Net.Nudge()
	}
	c.changed.fire()
}

// propose carries a command to the meta group's leader, wherever it is, until
// ctx ends. Commands may be applied twice without harm, so it sends again
// whatever became of an attempt.
func (c *Cluster) propose(ctx context.Context, cmd *wire.MetaCommand) (wire.MetaAnswer, error) {
	for {
		change := c.changed.wait()
		a, err := c.proposeOnce(ctx, cmd)
		if err == nil {
			return a, a.Err()
		}
		if code := api.CodeOf(err); code != "" && (&api.Error{Code: code}).Outcome() == api.OutcomeDone {
			return a, err
		}
		if c.sleep(ctx, 100*time.Millisecond, change) {
			return a, &api.Error{
				Code:    api.CodeNotReady,
				Message: "the meta group did not answer in time, and what was asked for may still be done: " + publicCause(err),
				Hint:    "see whether a quorum of the nodes is up: tidal status",
			}
		}
	}
}

func publicCause(err error) string {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

func (c *Cluster) proposeOnce(ctx context.Context, cmd *wire.MetaCommand) (wire.MetaAnswer, error) {
	leader := c.metaLeader()
	switch leader {
	case "":
		return wire.MetaAnswer{}, errors.New("the meta group has no leader")
	case c.o.Node:
		return c.lead(ctx, cmd)
	}
	b, err := encode(cmd)
	if err != nil {
		return wire.MetaAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if b, err = c.Ask(ctx, leader, wire.MethodPropose, b); err != nil {
		return wire.MetaAnswer{}, err
	}
	return wire.DecodeMetaAnswer(b)
}

// lead proposes a command as the meta group's leader, which this node must be.
func (c *Cluster) lead(ctx context.Context, cmd *wire.MetaCommand) (wire.MetaAnswer, error) {
	if !c.leadsMeta() {
		return wire.MetaAnswer{}, c.notMetaLeader()
	}
	if cmd.Kind == wire.MetaCreateTable && len(cmd.Nodes) == 0 {
		nodes, err := c.chooseNodes(cmd)
		if err != nil {
			return wire.MetaAnswer{}, err
		}
		chosen := *cmd
		chosen.Nodes = nodes
		cmd = &chosen
	}
	if cmd.Kind == wire.MetaChangeRoll && cmd.Roll.Action == api.RollTake {
		if err := c.mayTake(&cmd.Roll); err != nil {
			return wire.MetaAnswer{}, err
		}
	}
	b, err := encode(cmd)
	if err != nil {
		return wire.MetaAnswer{}, err
	}
	a, err := c.o.Host.Propose(ctx, uint64(api.MetaGroup), cmd.ID, b)
	if err != nil {
		return wire.MetaAnswer{}, &api.Error{Code: api.CodeNotReady, Message: "the meta group: " + err.Error()}
	}
	answer, ok := a.(*wire.MetaAnswer)
	if !ok {
		return wire.MetaAnswer{}, fmt.Errorf("meta group: an answer of type %T", a)
	}
	return *answer, nil
}

// encode returns the stored form of a command, or a bad-request error if it cannot be
// read again: every replica of the meta group would end over such an entry, at each
// start.
func encode(cmd *wire.MetaCommand) ([]byte, error) {
	b := wire.AppendMetaCommand(nil, cmd)
	if _, err := wire.DecodeMetaCommand(b); err != nil {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: err.Error()}
	}
	return b, nil
}

func (c *Cluster) notMetaLeader() *api.Error {
	return &api.Error{
		Code: api.CodeStaleOwner, Owner: c.metaLeader(),
		Message: "node " + c.o.Node + " does not lead the meta group",
	}
}

func refusal(format string, args ...any) *api.Error {
	return &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf(format, args...)}
}
