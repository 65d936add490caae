package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/ready"
	"tidal/node/internal/wire"
)

// leases is when the meta leader last heard of each lease, on its own monotonic
// clock and in memory alone.
type leases struct {
	mu      sync.Mutex
	renewed map[api.Incarnation]time.Time
	looked  time.Time // when they were last gone through
}

// reset counts every lease as renewed now: a new leader does not know better.
func (l *leases) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed, l.looked = map[api.Incarnation]time.Time{}, time.Time{}
}

func (l *leases) renew(inc api.Incarnation, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed != nil {
		l.renewed[inc] = now
	}
}

// dead returns the leases that ran out. A gap in which nobody looked, because
// this process stood still, counts against no lease.
func (l *leases) dead(held []wire.Lease, now time.Time) []api.Incarnation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed == nil {
		return nil
	}
	gap := time.Duration(0)
	if !l.looked.IsZero() && now.Sub(l.looked) > leaseRenew {
		gap = now.Sub(l.looked)
	}
	l.looked = now
	var out []api.Incarnation
	for _, lease := range held {
		at, known := l.renewed[lease.Incarnation]
		if !known {
			at = now
		}
		at = at.Add(gap)
		l.renewed[lease.Incarnation] = at
		if now.Sub(at) > leaseTTL+leaseSkew {
			out = append(out, lease.Incarnation)
		}
	}
	return out
}

// left returns in how long a lease ends unless it is renewed.
func (l *leases) left(inc api.Incarnation, now time.Time) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, known := l.renewed[inc]
	return max(0, leaseTTL+leaseSkew-now.Sub(at)), known
}

// expireLeases ends leases that are not renewed, while this node leads.
func (c *Cluster) expireLeases(ctx context.Context) error {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if !c.leadsMeta() {
			continue
		}
		for _, inc := range c.leases.dead(c.View().Leases, time.Now()) {
			c.o.Log.WarnContext(ctx, "lease ran out", "lease", inc.String())
			cmd := &wire.MetaCommand{Kind: wire.MetaExpireLease, ID: newID(), Incarnation: inc}
			if _, err := c.lead(ctx, cmd); err != nil {
				c.o.Log.WarnContext(ctx, "lease could not be ended", "lease", inc.String(), "error", err)
			}
		}
		c.noteDisks(ctx)
	}
}

// wanted is the lease that this node asks for.
func (c *Cluster) wanted() wire.Lease {
	address := c.o.Advertise
	if c.o.AdvertiseMember {
		address = c.o.Members[c.o.Node]
	}
	return wire.Lease{
		Disk: c.o.Identity.Disk, Incarnation: c.o.Identity.Incarnation, Address: address,
		Version: c.o.Version, Levels: c.o.Levels, Zone: c.o.Zone, Draining: c.drain.Load(),
	}
}

var errNoMetaLeader = errors.New("the meta group has no leader")

// renewLease asks for this node's lease and keeps it, until ctx ends.
func (c *Cluster) renewLease(ctx context.Context) error {
	if c.admitted() && !c.awaitMeta(ctx) {
		return nil // a newcomer that knows no tables yet must not answer for them
	}
	for ctx.Err() == nil && !c.Left() {
		change := c.changed.wait()
		r, err := c.renewOnce(ctx)
		switch code := api.CodeOf(err); {
		case err == nil:
			c.setLease(leaseState{granted: true})
			c.heardMeta(ready.Frontier{Term: r.Term, Index: r.Index})
		case code == api.CodeNotReady || code == api.CodeBadRequest:
			// The leader said that there is no lease. Not to reach it says nothing.
			c.setLease(leaseState{why: err.Error()})
		default:
			c.setLeaseCause(err.Error())
		}
		if err == nil || !errors.Is(err, errNoMetaLeader) && api.CodeOf(err) != api.CodeStaleOwner {
			change = nil // but for who leads, nothing that changes makes another answer likely
		}
		if c.sleep(ctx, leaseRenew, change) {
			break
		}
	}
	return nil
}

func (c *Cluster) setLease(s leaseState) {
	if s.granted && c.fenced.Load() != nil {
		return // an answer that was on its way
	}
	c.mu.Lock()
	was := c.mu.lease
	c.mu.lease = s
	c.mu.Unlock()
	switch {
	case s.granted && !was.granted:
		c.o.Log.Info("lease granted", "address", c.wanted().Address)
	case !s.granted && s.why != was.why:
		c.o.Log.Warn("no lease", "reason", s.why)
	}
	if s.granted != was.granted {
		c.changed.fire()
	}
}

// setLeaseCause notes why a lease is not there, without taking one away.
func (c *Cluster) setLeaseCause(why string) {
	c.mu.Lock()
	s := c.mu.lease
	c.mu.Unlock()
	if !s.granted {
		s.why = why
		c.setLease(s)
	}
}

func (c *Cluster) renewOnce(ctx context.Context) (wire.Renewal, error) {
	if why := c.fenced.Load(); why != nil {
		return wire.Renewal{}, &api.Error{Code: api.CodeNotReady, Message: why.Message}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	l := c.wanted()
	switch leader := c.metaLeader(); leader {
	case "":
		return wire.Renewal{}, errNoMetaLeader
	case c.o.Node:
		return c.grant(ctx, l)
	default:
		b, err := c.Ask(ctx, leader, wire.MethodRenew, wire.AppendLease(nil, &l))
		if err != nil {
			return wire.Renewal{}, err
		}
		return wire.DecodeRenewal(b)
	}
}

// grant renews a lease as the meta group's leader, or grants it once its address
// is proven.
func (c *Cluster) grant(ctx context.Context, l wire.Lease) (wire.Renewal, error) {
	if !c.leadsMeta() {
		return wire.Renewal{}, c.notMetaLeader()
	}
	inc := l.Incarnation
	held, ok := c.View().Lease(inc.Node)
	if !ok || held.Incarnation != inc || held.Address != l.Address {
		if err := c.prove(ctx, l); err != nil {
			return wire.Renewal{}, err
		}
		a, err := c.lead(ctx, &wire.MetaCommand{Kind: wire.MetaGrantLease, ID: newID(), Lease: l})
		if err == nil {
			err = a.Err()
		}
		if err != nil {
			return wire.Renewal{}, err
		}
	}
	c.leases.renew(inc, time.Now())
	return wire.Renewal{Term: c.metaNow.Load().Term, Index: c.gauge.Commit.Load()}, nil
}

// prove finds out whether a lease's address answers as its incarnation. The
// leader dials it; its own is dialled by a peer.
func (c *Cluster) prove(ctx context.Context, l wire.Lease) error {
	if c.o.NoAddressProof {
		return nil
	}
	if l.Incarnation.Node != c.o.Node || len(c.View().Members) == 1 {
		return c.dialProof(ctx, &l)
	}
	last := errors.New("none was heard lately")
	for _, m := range c.View().Members {
		if m.Node == c.o.Node || !c.heard(m.Node) {
			continue // a frozen peer would use up the time to ask another
		}
		_, err := c.Ask(ctx, m.Node, wire.MethodProve, wire.AppendLease(nil, &l))
		if err == nil || api.CodeOf(err) == api.CodeNotReady {
			return err
		}
		last = err
	}
	return &api.Error{
		Code:    api.CodeNotReady,
		Message: fmt.Sprintf("no other node could be asked to dial %s: %v", l.Address, last),
	}
}

func (c *Cluster) dialProof(ctx context.Context, l *wire.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	remote, _, err := c.o.Net.CallAddress(ctx, l.Address, 0, nil)
	switch {
	case err != nil:
		return &api.Error{
			Code:    api.CodeNotReady,
			Message: fmt.Sprintf("the address %s of node %s does not answer node %s: %v", l.Address, l.Incarnation.Node, c.o.Node, err),
			Hint:    "set node.advertise to an address that the other nodes reach",
		}
	case remote.Incarnation != l.Incarnation:
		return &api.Error{
			Code:    api.CodeNotReady,
			Message: fmt.Sprintf("at the address %s of %s, node %s met %s", l.Address, l.Incarnation, c.o.Node, remote.Incarnation),
			Hint:    "set node.advertise to this node's own address",
		}
	}
	return nil
}
