package sim

import "time"

// silence is how long a node may say nothing before the others call it dead.
const silence = 6 * tick

// pulse is what a node knows of another: when it was last heard, and whether it
// was called dead since.
type pulse struct {
	life int
	at   time.Duration
	dead bool
}

// listen says to the others that this node lives, and calls dead who does not.
// It stands for the heartbeats that nodes send whatever their loop does.
func (n *node) listen() {
	for _, x := range n.w.nodes {
		if x == n {
			continue
		}
		life := n.life
		n.w.carry(n, x, func() { x.hear(n.name, life) })
		p, known := n.heard[x.name]
		if known && !p.dead && n.w.now-p.at > silence {
			p.dead = true
			n.heard[x.name] = p
			n.stepper.Dead(x.name)
		}
	}
}

// hear takes a sign of life. The first after a silence, or of a new life, comes
// on a new connection.
func (n *node) hear(from string, life int) {
	if n.stepper == nil || n.disk.image() != nil {
		return
	}
	was, known := n.heard[from]
	if known && life < was.life {
		return
	}
	n.heard[from] = pulse{life: life, at: n.w.now}
	n.stepper.Alive(from, uint64(life))
	if !known || was.dead || was.life != life {
		n.stepper.Welcome(from)
	}
	n.wake()
}
