package sim

import (
	"errors"
	"fmt"
	"io"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/table"
)

// staging is where a node's disk has the snapshots that arrive.
const staging = "staging"

// Ship implements rafthost.Shipper. The snapshot leaves in a while, with what the
// node has by then.
func (n *node) Ship(s rafthost.Shipment) {
	if n.disk.image() != nil {
		return // it crashed before it came to this
	}
	life := n.life
	n.w.after(n.w.between(0, 20*time.Millisecond), func() { n.export(life, s) })
}

// export sends a snapshot. A sender that hears nothing of it for long enough gives
// it up, so that each ends once, however it ends.
func (n *node) export(life int, s rafthost.Shipment) {
	if !n.alive(life) {
		return
	}
	ended := false
	end := func(taken bool) {
		if !ended && n.alive(life) {
			ended = true
			n.stepper.ReportSnapshot(s, taken)
			n.wake()
		}
	}
	n.w.after(n.w.between(100*time.Millisecond, 300*time.Millisecond), func() { end(false) })
	parts, err := n.parts(s)
	if err != nil {
		n.w.trace("no snapshot %s: %v", n.name, err)
		return
	}
	for _, x := range n.w.nodes {
		if x.name != s.Node {
			continue
		}
		n.w.trace("snapshot %s to %s: %+v", n.name, x.name, s)
		if n.w.cutOff(n, x) {
			return
		}
		n.w.after(n.w.between(time.Millisecond, 60*time.Millisecond), func() {
			x.install(parts, func(err error) {
				n.w.trace("snapshot at %s: %v", x.name, err)
				if err == nil {
					n.w.report.Snapshots++
				}
				if !n.w.cutOff(x, n) {
					n.w.after(n.w.between(50*time.Microsecond, 2*time.Millisecond), func() { end(err == nil) })
				}
			})
		})
	}
}

// cutOff reports whether what a node sends to another now is lost.
func (w *world) cutOff(from, to *node) bool {
	return !w.healed && (w.broken[link{from.name, to.name}] > 0 || w.chance(w.faults.drop))
}

// parts returns a snapshot of what the database has now.
func (n *node) parts(s rafthost.Shipment) (parts [][]byte, err error) {
	e, err := rafthost.NewExport(n.db, s, n.w.o.Defect)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	for {
		part, err := e.Next()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
}

// install stages a snapshot and gives it to the stepper, unless the node crashes
// on the way.
func (n *node) install(parts [][]byte, done func(error)) {
	if n.stepper == nil {
		return
	}
	var st *rafthost.Stage
	err := n.guard(func() (err error) {
		st, err = n.stage(parts)
		return err
	})
	synctest.Wait()
	if image := n.disk.image(); image != nil {
		n.w.report.Torn++
		n.stop(image)
		return
	}
	if errors.Is(err, rafthost.ErrNoGroup) {
		done(err)
		return
	}
	if err != nil {
		n.w.history.find("node %s cannot stage a snapshot: %v", n.name, err)
		return
	}
	life := n.life
	n.stepper.Install(st, func(err error) {
		if err == nil {
			n.w.trace("installed %s: %+v", n.name, *st.Head())
		}
		n.w.after(0, func() {
			if !n.alive(life) {
				return
			}
			if derr := st.Drop(); derr != nil {
				n.w.history.find("node %s: drop a stage: %v", n.name, derr)
			}
			if err == nil {
				n.installed(st.Head().Group)
			}
			done(err)
		})
	})
	n.wake()
}

// installed gives the history the rows of a replica that a snapshot brought.
func (n *node) installed(group uint64) {
	p, here := n.stepper.Progress(group)
	if !here {
		return
	}
	if err := n.compare(replicaOf{group, p.Replica}, p.Applied); err != nil {
		n.w.history.find("node %s: %v", n.name, err)
	}
}

// arriving is a table that comes as a snapshot.
type arriving struct {
	*table.Arrival

	n     *node
	group uint64
}

func (n *node) arrive(group uint64) rafthost.Arriving {
	return arriving{table.Arrive(n.db, api.TableID(group)), n, group}
}

// Done implements rafthost.Arriving.
func (a arriving) Done() error { return nil }

// Machine implements rafthost.Arriving.
func (a arriving) Machine() (rafthost.Machine, error) {
	return a.n.record(a.group, a.Arrival.Machine()), nil
}

func (n *node) stage(parts [][]byte) (*rafthost.Stage, error) {
	n.stages++
	st, err := rafthost.NewStage(n.db, fmt.Sprintf("%s/%d", staging, n.stages), parts[0], n.stepper.Arrive)
	if err != nil {
		return nil, err
	}
	for i, p := range parts[1:] {
		whole, err := st.Take(p)
		if err != nil {
			return nil, err
		}
		if whole != (i == len(parts)-2) {
			return nil, errors.New("the end of the snapshot is not its end")
		}
	}
	return st, nil
}
