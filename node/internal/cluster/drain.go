package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// markMost is how long a drain waits for the meta group to make it known: tables go
// also while that has no leader.
const markMost = 2 * time.Second

// claims is the word of operators that this node must own nothing, on its own
// monotonic clock and in memory alone: a claim ends with the operator's life, or
// the node's.
type claims struct {
	mu      sync.Mutex
	by      string
	epoch   uint64    // of the newest claim
	until   time.Time // when it ends; zero: it has ended
	leaving bool      // this node stops, whatever is claimed
	crowded bool      // its disk is full, whatever is claimed

	roll    uint64 // the newest claim is a roll's; 0: somebody else's
	rolling uint64 // the highest epoch of a roll that was obeyed here
}

// liveLocked reports whether a claim lasts.
func (s *claims) liveLocked(now time.Time) bool { return !s.until.IsZero() && now.Before(s.until) }

// claim makes or renews a claim and returns its epoch.
func (s *claims) claim(epoch uint64, by string, now time.Time, ttl time.Duration) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.liveLocked(now)
	switch {
	case epoch == 0 && live && by != s.by:
		return 0, s.takenLocked()
	case epoch == 0 && !live:
		epoch = s.epoch + 1
	case epoch == 0:
		epoch = s.epoch // its maker does not remember the number
	case epoch < s.epoch || epoch == s.epoch && live && by != s.by:
		return 0, s.takenLocked()
	case epoch == s.epoch && !live:
		return 0, &api.Error{
			Code:    api.CodeClaimed,
			Message: fmt.Sprintf("the claim of epoch %d on this node's drain is over: it was given up or ran out", epoch),
			Hint:    "claim it anew, with a higher epoch or none",
		}
	}
	s.by, s.epoch, s.until, s.roll = by, epoch, now.Add(ttl), 0
	return epoch, nil
}

// claimFor makes or renews the claim of a roll, whose epochs a quorum orders. It
// takes over from an earlier holder of a roll, and from nobody else.
func (s *claims) claimFor(o api.NodeOrder, now time.Time, ttl time.Duration) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.liveLocked(now)
	switch {
	case o.Epoch < s.rolling:
		return 0, s.staleLocked(o)
	case live && s.roll == 0:
		return 0, s.takenLocked()
	case !live || s.rolling != o.Epoch:
		s.epoch++
	}
	s.by, s.until, s.roll, s.rolling = o.By, now.Add(ttl), o.Roll, o.Epoch
	return s.epoch, nil
}

func (s *claims) staleLocked(o api.NodeOrder) error {
	return &api.Error{
		Code:    api.CodeStaleEpoch,
		Message: fmt.Sprintf("this node has obeyed epoch %d of a roll: epoch %d of roll %d is over", s.rolling, o.Epoch, o.Roll),
	}
}

// takenLocked is the refusal of whoever comes with less than the newest claim.
func (s *claims) takenLocked() error {
	return &api.Error{
		Code:    api.CodeClaimed,
		Message: fmt.Sprintf("the drain of this node is claimed by %s with epoch %d", s.by, s.epoch),
		Hint:    "wait until it is given up, or end it: tidal node undrain",
	}
}

// allows returns an error if somebody else's claim lasts, or if a roll gives the
// order and its own claim does not: then it slept, and what it knows is old.
func (s *claims) allows(o api.NodeOrder, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := o.Epoch
	if o.Roll != 0 {
		switch live := s.liveLocked(now); {
		case epoch < s.rolling:
			return s.staleLocked(o)
		case live && s.roll == 0:
			return s.takenLocked()
		case !live || s.roll != o.Roll || s.rolling != epoch:
			return &api.Error{Code: api.CodeClaimed, Message: fmt.Sprintf("the claim of roll %d on this node's drain is over", o.Roll), Hint: "claim it anew, and look at the cluster again"}
		}
		return nil
	}
	if epoch < s.epoch && (epoch != 0 || s.liveLocked(now)) {
		return s.takenLocked()
	}
	return nil
}

// release ends the claim. Epoch 0 ends any; another must be the newest. A roll ends
// its own, or an earlier holder's.
func (s *claims) release(o api.NodeOrder, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := o.Epoch
	if o.Roll != 0 {
		switch {
		case epoch < s.rolling:
			return s.staleLocked(o)
		case s.liveLocked(now) && s.roll == 0:
			return s.takenLocked()
		}
		s.rolling, s.until = epoch, time.Time{}
		return nil
	}
	if epoch != 0 && epoch < s.epoch {
		return s.takenLocked()
	}
	s.epoch, s.until = max(s.epoch, epoch), time.Time{}
	return nil
}

// settle puts into drain whether this node must own nothing, and returns the claim
// that says so if there is one, whether drain changed, and whether a claim has
// just run out.
func (s *claims) settle(now time.Time, drain *atomic.Bool) (claim *api.Claim, changed, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.liveLocked(now)
	if live {
		claim = &api.Claim{By: s.by, Epoch: s.epoch, EndsIn: s.until.Sub(now).Round(100 * time.Millisecond).String(), Roll: s.roll}
	} else if !s.until.IsZero() {
		s.until, over = time.Time{}, true
	}
	must := live || s.leaving || s.crowded
	return claim, drain.Swap(must) != must, over
}

// crowd notes whether the disk is full.
func (s *claims) crowd(crowded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crowded = crowded
}

// wanted reports whether somebody wants this node to own nothing.
func (s *claims) wanted(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving || s.liveLocked(now)
}

func (s *claims) leave(leaving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = leaving
}

// ClaimDrain has this node hand over what it owns and own nothing until the claim
// ends, which it does by itself after ttl. It returns at once. The error has the
// code claimed, or stale-epoch.
func (c *Cluster) ClaimDrain(o api.NodeOrder, ttl time.Duration) error {
	var epoch uint64
	var err error
	if o.Roll != 0 {
		epoch, err = c.claims.claimFor(o, time.Now(), ttl)
	} else {
		epoch, err = c.claims.claim(o.Epoch, o.By, time.Now(), ttl)
	}
	if err != nil {
		return err
	}
	if !c.drain.Load() {
		c.o.Log.Info("drain claimed", "by", o.By, "epoch", epoch, "ttl", ttl)
	}
	c.Claim()
	return nil
}

// ReleaseDrain ends a claim on this node's drain.
func (c *Cluster) ReleaseDrain(o api.NodeOrder) error {
	if err := c.claims.release(o, time.Now()); err != nil {
		return err
	}
	c.o.Log.Info("drain given up", "by", o.By, "epoch", o.Epoch)
	c.Claim()
	return nil
}

// MayOrder returns an error if somebody else's claim on this node lasts.
func (c *Cluster) MayOrder(o api.NodeOrder) error { return c.claims.allows(o, time.Now()) }

// Claim returns the claim on this node's drain, nil if there is none, after
// putting into effect what the claims come to now.
func (c *Cluster) Claim() *api.Claim {
	claim, changed, over := c.claims.settle(time.Now(), &c.drain)
	if over {
		c.o.Log.Warn("the claim on the drain ran out: the node takes tables again")
	}
	if changed {
		c.changed.fire()
	}
	return claim
}

// keepClaim ends the claim when its time is over, and keeps the lease's mark in
// step with whether this node drains.
func (c *Cluster) keepClaim(ctx context.Context) error {
	for {
		change := c.changed.wait()
		claim := c.Claim()
		l, held := c.View().Lease(c.o.Node)
		if drain := c.drain.Load(); held && l.Incarnation == c.o.Identity.Incarnation && l.Draining != drain && !c.left.Load() {
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			c.markLease(call, drain)
			cancel()
		}
		if (claim != nil || c.room.own.Load()) && c.metaNow.Load().Leads {
			call, cancel := context.WithTimeout(ctx, time.Second)
			c.leaveMeta(call)
			cancel()
		}
		rest := time.Second
		if claim != nil {
			rest = 100 * time.Millisecond
		}
		if c.sleep(ctx, rest, change) {
			return nil
		}
	}
}

func (c *Cluster) markLease(ctx context.Context, draining bool) {
	cmd := &wire.MetaCommand{Kind: wire.MetaDrainLease, ID: newID(), Incarnation: c.o.Identity.Incarnation, Draining: draining}
	if _, err := c.propose(ctx, cmd); err != nil && ctx.Err() != nil {
		c.o.Log.WarnContext(ctx, "the drain could not be made known", "draining", draining, "error", err)
	}
}

// Drain hands everything over that another node can own: it returns once this
// node owns nothing of the kind, or ctx ends. It goes on answering.
func (c *Cluster) Drain(ctx context.Context) {
	c.claims.leave(true)
	c.Claim()
	if !c.Formed() {
		return
	}
	mark, cancel := context.WithTimeout(ctx, markMost)
	c.markLease(mark, true) // keepClaim goes on trying
	cancel()
	for c.owesTables() {
		if c.sleep(ctx, 10*time.Millisecond, c.changed.wait()) {
			c.o.Log.WarnContext(ctx, "tables were not handed over in time", "tables", c.Owned())
			break
		}
	}
	c.leaveMeta(ctx)
}

// Stay takes a Drain back: this node owns tables again unless a claim lasts.
func (c *Cluster) Stay() {
	c.claims.leave(false)
	c.Claim()
}

// Draining reports whether this node hands over what it owns.
func (c *Cluster) Draining() bool { return c.drain.Load() }
