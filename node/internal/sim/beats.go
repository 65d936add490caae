package sim

import "time"

const (
	silence    = 6 * tick  // how long a node may say nothing before the others call it dead
	stallAfter = 10 * tick // how long its loop may stand still before
	ownLate    = 3 * tick  // an interval between two looks in which a node was late itself
)

// pulse is what a node knows of another.
type pulse struct {
	life    int
	silent  time.Duration // since it was heard
	dead    bool          // it was called dead since
	refused bool          // and nothing listened there: this life is over
}

// beat says to the others that this node lives, whatever its loop does: how long
// that has stood still is part of it.
func (n *node) beat() {
	life, stalled := n.life, n.w.now < n.until && n.w.now-n.stopped > stallAfter
	for _, x := range n.w.nodes {
		if x != n {
			n.w.carry(n, x, func() { x.hear(n.name, life, stalled) })
		}
	}
}

// watch calls dead who is silent for too long. A look that came late counts against
// nobody.
func (n *node) watch() {
	elapsed := n.w.now - n.looked
	n.looked = n.w.now
	for _, x := range n.w.nodes {
		p, known := n.heard[x.name]
		if !known || p.dead || elapsed > ownLate {
			continue
		}
		if p.silent += elapsed; p.silent > silence {
			p.dead = true
			n.stepper.Dead(x.name)
		}
		n.heard[x.name] = p
	}
}

// hear takes a sign of life. The first of a new life comes on a new connection, the
// first after a silence at times.
func (n *node) hear(from string, life int, stalled bool) { //nolint:revive // the flag is part of the heartbeat
	if n.stepper == nil || n.disk.image() != nil {
		return
	}
	if n.later(func() { n.hear(from, life, stalled) }) {
		return
	}
	was, known := n.heard[from]
	if known && (life < was.life || life == was.life && was.refused) {
		return
	}
	fresh := !known || life > was.life
	n.heard[from] = pulse{life: life, dead: stalled}
	if fresh || !stalled {
		n.stepper.Alive(from, uint64(life))
	}
	if fresh || was.dead && !stalled && n.w.chance(0.5) {
		n.stepper.Welcome(from)
	}
	if stalled {
		n.stepper.Dead(from)
	}
	n.wake()
}

// mourn takes word that nothing listens any more where a node was: its process is
// gone.
func (n *node) mourn(who string, life int) {
	if n.stepper == nil || n.disk.image() != nil {
		return
	}
	if n.later(func() { n.mourn(who, life) }) {
		return
	}
	if p := n.heard[who]; p.life == life {
		p.dead, p.refused = true, true
		n.heard[who] = p
		n.stepper.Dead(who)
		n.wake()
	}
}

// halt stops a node for a while: all of it, or its loop alone, as when its disk
// hangs; then it goes on saying that it lives.
func (w *world) halt(n *node) {
	if n.stepper == nil || w.now < n.until {
		return
	}
	n.stopped, n.until, n.frozen = w.now, w.now+w.between(10*time.Millisecond, 800*time.Millisecond), w.chance(0.5)
	w.trace("halt %s until %s, frozen %v", n.name, n.until, n.frozen)
}

// later puts f off while the node, or its loop, stands still.
func (n *node) later(f func()) bool {
	wait := n.until - n.w.now
	if wait <= 0 {
		return false
	}
	life := n.life
	n.w.after(wait, func() {
		if n.alive(life) {
			f()
		}
	})
	return true
}
