package meta

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// keepRolls is how many rolls are remembered, and rollNodes how many nodes of one.
const (
	keepRolls = 20
	rollNodes = 256
)

func rollID(r *wire.Roll) uint64          { return r.ID }
func rollNodeName(n wire.RollNode) string { return n.Node }

func rollKey(id uint64) string { return prefixRoll + fmt.Sprintf("%016x", id) }

// Roll returns the roll with that id.
func (v *View) Roll(id uint64) (*wire.Roll, bool) { return find(v.Rolls, id, rollID) }

// LastRoll returns the newest roll, which alone may hold the lock; nil if there
// never was one.
func (v *View) LastRoll() *wire.Roll {
	if len(v.Rolls) == 0 {
		return nil
	}
	return v.Rolls[len(v.Rolls)-1]
}

func (v *View) putRoll(r wire.Roll) Change {
	v.Rolls = put(v.Rolls, &r, rollID)
	return Change{Key: []byte(rollKey(r.ID)), Value: wire.AppendRoll(nil, &r)}
}

func (v *View) putRollNode(id uint64, n wire.RollNode) Change {
	r := wire.Roll{ID: id} // the node's record may be loaded first
	if known, ok := v.Roll(id); ok {
		r = *known
	}
	r.Nodes = put(r.Nodes, n, rollNodeName)
	v.Rolls = put(v.Rolls, &r, rollID)
	return Change{Key: []byte(rollKey(id) + "/" + n.Node), Value: wire.AppendRollNode(nil, &n)}
}

func (v *View) loadRoll(key string, value []byte) error {
	hex, node, ofNode := strings.Cut(key, "/")
	id, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return fmt.Errorf("the roll's number: %w", err)
	}
	if ofNode {
		var n wire.RollNode
		n, err = wire.DecodeRollNode(value)
		n.Node = node
		v.putRollNode(id, n)
		return err
	}
	r, err := wire.DecodeRoll(value)
	if known, ok := v.Roll(id); ok {
		r.Nodes = known.Nodes
	}
	v.putRoll(r)
	return err
}

// roll changes a roll. Commands name the epoch that they count on: whoever held
// the roll before can do nothing more.
func (d *draft) roll(id api.RequestID, c *wire.RollCommand) wire.MetaAnswer {
	if c.Action == api.RollStart {
		return d.startRoll(id, c)
	}
	r := d.LastRoll()
	if known, ok := d.Roll(c.Roll); !ok || r != known {
		if !ok {
			return wire.MetaAnswer{Code: api.CodeRollNotFound, Message: fmt.Sprintf("there is no roll %d", c.Roll)}
		}
		return conflict("roll %d is over: roll %d came after it", c.Roll, r.ID)
	}
	switch c.Action { //nolint:exhaustive // to start was handled above, and to renew is no command
	case api.RollTake:
		return d.takeRoll(id, r, c)
	case api.RollNote:
		return d.noteRoll(r, c)
	case api.RollEnd:
		return d.endRoll(r, c)
	case api.RollAsk:
		return d.askRoll(r, c)
	case api.RollUnlock:
		return d.unlockRoll(id, r, c)
	}
	return refuse("a roll cannot %s", c.Action)
}

func rollAnswer(r *wire.Roll, changed bool) wire.MetaAnswer {
	return wire.MetaAnswer{Changed: changed, Roll: r.ID, Epoch: r.Epoch}
}

// StaleEpoch is the refusal of whoever does not hold a roll any more.
func StaleEpoch(r *wire.Roll, epoch uint64) wire.MetaAnswer {
	return wire.MetaAnswer{
		Code:    api.CodeStaleEpoch,
		Message: fmt.Sprintf("roll %d has epoch %d now and is held by %s (%s): epoch %d is over", r.ID, r.Epoch, r.By, r.Status, epoch),
	}
}

func (d *draft) startRoll(id api.RequestID, c *wire.RollCommand) wire.MetaAnswer {
	now := wire.Roll{
		ID: 1, Epoch: 1, By: c.By, Status: api.RollRunning, Began: c.At, Changed: c.At,
		Made: id, Taken: id, Plan: c.Data,
	}
	if last := d.LastRoll(); last != nil {
		switch {
		case last.Made == id:
			return rollAnswer(last, false)
		case last.Status.Open():
			return wire.MetaAnswer{
				Code:    api.CodeRollLocked,
				Message: fmt.Sprintf("roll %d of %s is %s, and only one roll goes on at a time", last.ID, last.By, last.Status),
			}
		}
		now.ID, now.Epoch = last.ID+1, last.Epoch+1
	}
	d.record(d.putRoll(now))
	for len(d.Rolls) > keepRolls {
		d.forgetRoll(d.Rolls[0])
	}
	return rollAnswer(&now, true)
}

func (d *draft) forgetRoll(r *wire.Roll) {
	for _, n := range r.Nodes {
		d.record(Change{Key: []byte(rollKey(r.ID) + "/" + n.Node)})
	}
	d.Rolls = drop(d.Rolls, r.ID, rollID)
	d.record(Change{Key: []byte(rollKey(r.ID))})
}

func (d *draft) takeRoll(id api.RequestID, r *wire.Roll, c *wire.RollCommand) wire.MetaAnswer {
	switch {
	case r.Taken == id:
		return rollAnswer(r, false)
	case !r.Status.Open():
		return conflict("roll %d is %s", r.ID, r.Status)
	case c.Epoch != r.Epoch:
		return StaleEpoch(r, c.Epoch)
	}
	now := *r
	now.Epoch, now.By, now.Status, now.Taken, now.Changed = r.Epoch+1, c.By, api.RollRunning, id, c.At
	now.Ask, now.Why = "", ""
	d.record(d.putRoll(now))
	return rollAnswer(&now, true)
}

func (d *draft) noteRoll(r *wire.Roll, c *wire.RollCommand) wire.MetaAnswer {
	if c.Epoch != r.Epoch || r.Status != api.RollRunning {
		return StaleEpoch(r, c.Epoch)
	}
	n, known := find(r.Nodes, c.Node, rollNodeName)
	switch {
	case !known && len(r.Nodes) >= rollNodes:
		return refuse("roll %d has %d nodes: that is the limit", r.ID, rollNodes)
	case known && n.State == c.State && n.Note == c.Note && bytes.Equal(n.Data, c.Data):
		return rollAnswer(r, false)
	}
	if n.State != c.State {
		n.Step(wire.RollStep{State: c.State, At: c.At})
	}
	n.Node, n.State, n.Note, n.Data = c.Node, c.State, c.Note, c.Data
	d.record(d.putRollNode(r.ID, n))
	return rollAnswer(r, true)
}

func (d *draft) endRoll(r *wire.Roll, c *wire.RollCommand) wire.MetaAnswer {
	switch {
	case c.Epoch != r.Epoch:
		return StaleEpoch(r, c.Epoch)
	case r.Status == c.Status && r.Why == c.Why && bytes.Equal(r.Report, c.Data):
		return rollAnswer(r, false)
	case r.Status != api.RollRunning:
		return conflict("roll %d is %s", r.ID, r.Status)
	}
	now := *r
	now.Status, now.Why, now.Report, now.Changed, now.Ask = c.Status, c.Why, c.Data, c.At, ""
	d.record(d.putRoll(now))
	return rollAnswer(&now, true)
}

func (d *draft) askRoll(r *wire.Roll, c *wire.RollCommand) wire.MetaAnswer {
	switch {
	case r.Status != api.RollRunning:
		return conflict("roll %d is %s: nobody is there to be asked", r.ID, r.Status)
	case r.Ask == c.Ask || r.Ask == api.RollAskAbort:
		return rollAnswer(r, false)
	}
	now := *r
	now.Ask = c.Ask
	d.record(d.putRoll(now))
	return rollAnswer(&now, true)
}

func (d *draft) unlockRoll(id api.RequestID, r *wire.Roll, c *wire.RollCommand) wire.MetaAnswer {
	switch {
	case r.Taken == id:
		return rollAnswer(r, false)
	case !r.Status.Open():
		return conflict("roll %d is %s: it holds no lock", r.ID, r.Status)
	}
	now := *r
	now.Epoch, now.By, now.Status, now.Why, now.Taken, now.Changed = r.Epoch+1, c.By, api.RollAborted, c.Why, id, c.At
	now.Ask = ""
	d.record(d.putRoll(now))
	return rollAnswer(&now, true)
}
