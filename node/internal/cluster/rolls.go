package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

// freshPatience bounds how long a node waits to have applied what the meta leader has.
const freshPatience = 5 * time.Second

// heardRolls is when the meta leader last heard the holder of a roll's lock, on
// its own monotonic clock and in memory alone.
type heardRolls struct {
	mu    sync.Mutex
	epoch uint64
	at    time.Time
}

// heard notes that the holder of an epoch lives.
func (h *heardRolls) heard(epoch uint64, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if epoch >= h.epoch {
		h.epoch, h.at = epoch, now
	}
}

// silent returns how long the holder of an epoch has been silent. A leader that
// never heard it counts from now.
func (h *heardRolls) silent(epoch uint64, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.epoch != epoch || h.at.IsZero() {
		h.epoch, h.at = epoch, now
	}
	return now.Sub(h.at)
}

// reset counts whoever holds the lock as heard now: a new leader does not know
// better.
func (h *heardRolls) reset(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = now
}

// Fresh returns once this node has applied all that the meta group had agreed on
// when it was called: what View returns then is no older than the call.
func (c *Cluster) Fresh(ctx context.Context) error {
	_, err := c.fresh(ctx, 0)
	return err
}

// fresh is Fresh that also tells the leader that the holder of a roll's epoch lives.
// It returns what the leader said.
func (c *Cluster) fresh(ctx context.Context, epoch uint64) (wire.MetaRead, error) {
	ctx, cancel := context.WithTimeout(ctx, freshPatience)
	defer cancel()
	var said wire.MetaRead
	for {
		change := c.changed.wait()
		var err error
		if said, err = c.readMeta(ctx, epoch); err == nil {
			break
		}
		if c.sleep(ctx, 100*time.Millisecond, change) {
			return said, &api.Error{
				Code: api.CodeNotReady, Message: "the meta group has no leader that a quorum confirms: " + publicCause(err),
				Hint: "see whether a quorum of the nodes is up: tidal status",
			}
		}
	}
	for c.gauge.Applied.Load() < said.Index {
		if c.sleep(ctx, 10*time.Millisecond, c.changed.wait()) {
			return said, &api.Error{
				Code: api.CodeNotReady, Message: fmt.Sprintf("node %s is behind the meta group: it has applied %d of %d", c.o.Node, c.gauge.Applied.Load(), said.Index),
			}
		}
	}
	return said, nil
}

// readMeta asks the meta group's leader for a position that holds all that was agreed
// on before the call, as a quorum knows.
func (c *Cluster) readMeta(ctx context.Context, epoch uint64) (wire.MetaRead, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	payload := wire.AppendUvarint(nil, epoch)
	var b []byte
	var err error
	switch leader := c.metaLeader(); leader {
	case "":
		return wire.MetaRead{}, &api.Error{Code: api.CodeNotReady, Message: "the meta group has no leader"}
	case c.o.Node:
		b, err = c.answerMetaRead(ctx, payload)
	default:
		b, err = c.o.Net.Call(ctx, leader, wire.MethodMetaRead, payload)
	}
	if err != nil {
		return wire.MetaRead{}, err
	}
	return wire.DecodeMetaRead(b)
}

// answerMetaRead answers readMeta as the meta group's leader.
func (c *Cluster) answerMetaRead(ctx context.Context, payload []byte) ([]byte, error) {
	r := wire.NewReader(payload)
	epoch := r.Uvarint("epoch")
	if err := r.Done(); err != nil {
		return nil, err
	}
	if !c.leadsMeta() {
		return nil, c.notMetaLeader()
	}
	if err := c.o.Host.ReadIndex(ctx, uint64(api.MetaGroup)); err != nil {
		return nil, &api.Error{Code: api.CodeNotReady, Message: "the meta group: " + err.Error()}
	}
	if epoch != 0 {
		c.rolls.heard(epoch, time.Now())
	}
	said := wire.MetaRead{Index: c.gauge.Applied.Load()}
	if last := c.View().LastRoll(); last != nil && last.Status == api.RollRunning {
		said.Epoch, said.Silent = last.Epoch, c.rolls.silent(last.Epoch, time.Now())
	}
	return wire.AppendMetaRead(nil, said), nil
}

// mayTake is an error unless a roll may be taken over now, as the meta group's
// leader sees it.
func (c *Cluster) mayTake(cmd *wire.RollCommand) error {
	r, ok := c.View().Roll(cmd.Roll)
	if !ok || r.Status != api.RollRunning || cmd.Force {
		return nil // what is wrong with it the state says
	}
	if silent := c.rolls.silent(r.Epoch, time.Now()); silent < api.RollSilence {
		return &api.Error{
			Code: api.CodeRollLocked,
			Message: fmt.Sprintf("roll %d is held by %s, who was heard %s ago; it may be taken over after %s of silence",
				r.ID, r.By, silent.Round(100*time.Millisecond), api.RollSilence),
			Hint: "wait for it: tidal roll watch; or ask it to stop: tidal roll pause",
		}
	}
	return nil
}

// HoldsRoll returns an error unless an epoch of a roll is the one in force, as a
// quorum knows it now.
func (c *Cluster) HoldsRoll(ctx context.Context, roll, epoch uint64) error {
	if err := c.Fresh(ctx); err != nil {
		return err
	}
	return holds(c.View(), roll, epoch)
}

func holds(v *meta.View, roll, epoch uint64) error {
	r, ok := v.Roll(roll)
	if !ok {
		return &api.Error{Code: api.CodeRollNotFound, Message: fmt.Sprintf("there is no roll %d", roll)}
	}
	if r.Epoch != epoch || r.Status != api.RollRunning {
		stale := meta.StaleEpoch(r, epoch)
		return stale.Err()
	}
	return nil
}

// Rolls lists the last rolls, the newest first, as a quorum knows them.
func (c *Cluster) Rolls(ctx context.Context) ([]api.Roll, error) {
	said, err := c.fresh(ctx, 0)
	if err != nil {
		return nil, err
	}
	out := []api.Roll{}
	for _, r := range slices.Backward(c.View().Rolls) {
		out = append(out, heardOf(briefRoll(r), said))
	}
	return out, nil
}

// Roll describes a roll as a quorum knows it; 0 is the newest.
func (c *Cluster) Roll(ctx context.Context, id uint64) (api.Roll, error) {
	said, err := c.fresh(ctx, 0)
	if err != nil {
		return api.Roll{}, err
	}
	v := c.View()
	if last := v.LastRoll(); id == 0 && last != nil {
		return heardOf(wholeRoll(last), said), nil
	}
	r, ok := v.Roll(id)
	if !ok {
		return api.Roll{}, &api.Error{Code: api.CodeRollNotFound, Message: noRoll(id), Hint: "GET /v1/rolls lists the last ones"}
	}
	return heardOf(wholeRoll(r), said), nil
}

// heardOf adds what the meta leader knows of the operator of a roll that runs.
func heardOf(r api.Roll, said wire.MetaRead) api.Roll {
	if r.Status == api.RollRunning && r.Epoch == said.Epoch {
		ms := said.Silent.Milliseconds()
		r.Silent = &ms
	}
	return r
}

func noRoll(id uint64) string {
	if id == 0 {
		return "there was no roll yet in this cluster"
	}
	return fmt.Sprintf("there is no roll %d, or it was forgotten", id)
}

// ChangeRoll does something with a roll, 0 being the newest, and returns what became
// of it.
func (c *Cluster) ChangeRoll(ctx context.Context, a api.RollAction, id uint64, ch api.RollChange) (api.Roll, error) {
	if err := ch.Check(a); err != nil {
		return api.Roll{}, err
	}
	if a == api.RollRenew {
		if _, err := c.fresh(ctx, ch.Epoch); err != nil {
			return api.Roll{}, err
		}
		v := c.View()
		if err := holds(v, id, ch.Epoch); err != nil {
			return api.Roll{}, err
		}
		r, _ := v.Roll(id)
		return briefRoll(r), nil
	}
	switch {
	case a == api.RollStart:
		id = 0
	case id == 0: // the newest
		r, err := c.Roll(ctx, 0)
		if err != nil {
			return api.Roll{}, err
		}
		id = r.ID
	}
	answer, err := c.propose(ctx, &wire.MetaCommand{Kind: wire.MetaChangeRoll, ID: newID(), Roll: wire.RollCommand{
		Action: a, Roll: id, At: time.Now().UnixMilli(), Force: ch.Force, Epoch: ch.Epoch, By: ch.By,
		Node: ch.Node, State: ch.State, Note: ch.Note, Status: ch.Status, Ask: ch.Ask, Why: ch.Why, Data: ch.Data,
	}})
	if err != nil {
		return api.Roll{}, err
	}
	if err = c.Fresh(ctx); err != nil {
		return api.Roll{}, err
	}
	r, ok := c.View().Roll(answer.Roll)
	if !ok {
		return api.Roll{}, &api.Error{Code: api.CodeRollNotFound, Message: noRoll(answer.Roll)}
	}
	if a == api.RollStart || a == api.RollTake {
		// Who is told of an epoch must not be shown a later one as its own.
		if r.Epoch != answer.Epoch {
			stale := meta.StaleEpoch(r, answer.Epoch)
			return api.Roll{}, stale.Err()
		}
		return wholeRoll(r), nil
	}
	return briefRoll(r), nil
}

func briefRoll(r *wire.Roll) api.Roll {
	return api.Roll{
		ID: r.ID, Epoch: r.Epoch, By: r.By, Status: r.Status, Ask: r.Ask, Why: r.Why,
		Began: time.UnixMilli(r.Began).UTC(), Changed: time.UnixMilli(r.Changed).UTC(),
	}
}

func wholeRoll(r *wire.Roll) api.Roll {
	out := briefRoll(r)
	out.Plan, out.Report = r.Plan, r.Report
	for _, n := range r.Nodes {
		node := api.RollNode{Node: n.Node, State: n.State, Note: n.Note, Data: n.Data, Steps: []api.RollStep{}}
		for _, s := range n.Steps {
			node.Steps = append(node.Steps, api.RollStep{State: s.State, At: time.UnixMilli(s.At).UTC()})
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}
