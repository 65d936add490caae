package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
	"tidal/node/internal/owner"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

const (
	// markAfter is how long the nodes have to begin waiting for a mark. One that is
	// late meets another mark, and is asked once more.
	markAfter = 200 * time.Millisecond
	// checkTries is how often replicas are asked until all of them answer for the
	// same mark.
	checkTries = 3
)

// CheckTable compares the replicas of a table at one place in its order, and has those
// that differ from most others serve nothing any more.
func (n *node) CheckTable(ctx context.Context, name string) (api.TableCheck, error) {
	info, err := n.cluster.Named(ctx, name)
	if err != nil {
		return api.TableCheck{}, err
	}
	check, _, err := n.checkTable(ctx, info, false)
	return check, err
}

// checkTable is CheckTable, for somebody who waits or for nobody, and returns the place
// too.
func (n *node) checkTable(ctx context.Context, info *wire.Table, idle bool) (api.TableCheck, uint64, error) {
	var found []found
	for range checkTries {
		route, ok := n.cluster.Find(info.Name)
		if !ok || route.Owner == "" {
			return api.TableCheck{}, 0, &api.Error{
				Code: api.CodeNoOwner, Message: "the table " + info.Name + " has no owner now: there is no order to compare its replicas in", RetryAfter: time.Second,
			}
		}
		found = n.digests(ctx, info, route.Owner, idle)
		if oneMark(found) || ctx.Err() != nil {
			break
		}
	}
	check, mark := judge(info, found)
	if differ := check.Count(api.ReplicaDiffers); differ > 0 {
		n.meters.differ.Add(float64(differ))
		n.log.ErrorContext(ctx, "replicas of a table differ", "table", info.Name, "position", check.Position, "replicas", fmt.Sprint(check.Replicas))
		n.fence(ctx, info, &check)
	}
	return check, mark, nil
}

// found is what came of asking one replica.
type found struct {
	digest wire.Digest
	err    error
}

// digests asks all replicas of a table at once, and then has its owner put a mark
// into its order.
func (n *node) digests(ctx context.Context, info *wire.Table, leader string, idle bool) []found {
	out := make([]found, len(info.Replicas))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var g errgroup.Group
	for i, r := range info.Replicas {
		g.Go(func() error {
			out[i].digest, out[i].err = n.askDigest(ctx, r.Node, wire.DigestCall{Kind: wire.DigestAsk, Table: info.ID, Idle: idle})
			return nil
		})
	}
	timer := time.NewTimer(markAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if _, err := n.askDigest(ctx, leader, wire.DigestCall{Kind: wire.DigestMark, Table: info.ID}); err != nil {
		cancel(fmt.Errorf("no mark: %w", err)) // nobody need wait for it
	}
	_ = g.Wait() // the functions return no errors
	return out
}

// askDigest asks a node, which may be this one.
func (n *node) askDigest(ctx context.Context, to string, c wire.DigestCall) (wire.Digest, error) {
	if to == n.o.Config.Node.ID {
		return n.digest(ctx, c)
	}
	b, err := n.net.Call(ctx, to, wire.MethodDigest, wire.AppendDigestCall(nil, c))
	if err != nil {
		return wire.Digest{}, err
	}
	return wire.DecodeDigest(b)
}

// digest answers for the replica here.
func (n *node) digest(ctx context.Context, c wire.DigestCall) (wire.Digest, error) {
	var err error
	var d wire.Digest
	switch c.Kind {
	case wire.DigestMark:
		err = n.tables.Mark(ctx, c.Table)
	case wire.DigestFence:
		err = n.tables.Fence(ctx, c.Table, c.Replica)
	case wire.DigestAsk:
		rate := owner.DigestRate
		if c.Idle {
			rate = owner.IdleRate
		}
		d.Index, d.Hash, err = n.tables.Digest(ctx, c.Table, rate)
	}
	switch {
	case errors.Is(err, rafthost.ErrNoGroup):
		err = &api.Error{Code: api.CodeStaleOwner, Message: "node " + n.o.Config.Node.ID + " holds no replica of the table"}
	case errors.Is(err, rafthost.ErrNotLeader), errors.Is(err, rafthost.ErrUnknown):
		err = &api.Error{Code: api.CodeStaleOwner, Message: "node " + n.o.Config.Node.ID + " does not own the table"}
	}
	return d, err
}

// answerDigest answers what another node asks about the replica here.
func (n *node) answerDigest(ctx context.Context, from wire.Hello, payload []byte) ([]byte, error) {
	if from.ClusterID.IsZero() {
		return nil, &api.Error{Code: api.CodeForbidden, Message: "node " + from.Incarnation.Node + " does not belong to the cluster"}
	}
	c, err := wire.DecodeDigestCall(payload)
	if err != nil {
		return nil, err
	}
	d, err := n.digest(ctx, c)
	if err != nil {
		return nil, err
	}
	return wire.AppendDigest(nil, d), nil
}

// oneMark reports whether any answered, and all who did for the same mark.
func oneMark(list []found) bool {
	index := uint64(0)
	for _, f := range list {
		if f.err == nil && index != 0 && f.digest.Index != index {
			return false
		}
		if f.err == nil {
			index = f.digest.Index
		}
	}
	return index != 0
}

// judge says of each replica whether it has what more than half of all of them have.
// If no state has so many, nobody can say which is right, and all differ.
func judge(info *wire.Table, list []found) (check api.TableCheck, mark uint64) {
	check = api.TableCheck{Table: info.Name, ID: info.ID, Replicas: make([]api.CheckedReplica, len(list))}
	count := map[wire.Digest]int{}
	marks := map[uint64]int{}
	for _, f := range list {
		if f.err != nil {
			continue
		}
		count[f.digest]++
		marks[f.digest.Index]++
		if marks[f.digest.Index] > marks[mark] {
			mark = f.digest.Index
		}
	}
	check.Position = api.Position{Table: info.ID, Index: mark}.String()
	states := 0
	for d := range count {
		if d.Index == mark {
			states++
		}
	}
	for i, f := range list {
		r := api.CheckedReplica{Node: info.Replicas[i].Node, ID: strconv.FormatUint(info.Replicas[i].ID, 16)}
		switch {
		case f.err != nil:
			r.State, r.Why = api.ReplicaUnchecked, publicText(f.err)
		case f.digest.Index != mark:
			r.State, r.Why = api.ReplicaUnchecked, "it did not meet the mark that the others met"
		default:
			r.State, r.Hash = api.ReplicaDiffers, hex.EncodeToString(f.digest.Hash[:])
			if states == 1 || 2*count[f.digest] > len(list) {
				r.State = api.ReplicaSame
			}
		}
		check.Replicas[i] = r
	}
	slices.SortFunc(check.Replicas, func(a, b api.CheckedReplica) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	return check, mark
}
