package sim

import (
	"hash/fnv"
	"time"
)

// faults is what goes wrong in a run, and how often. Each run draws its own, so
// that some are dense with one kind and free of others.
type faults struct {
	drop, double float64 // share of batches that are lost, or come twice
	late         float64 // share of batches that take up to 100 ms
	slow         float64 // share of passes that start up to 60 ms late

	crash, cut, transfer time.Duration // mean time between two of a kind; 0: never
	split, halt          time.Duration // likewise, of long cuts and of nodes that stand still
	lull                 time.Duration // mean time between pauses in which nobody asks for anything
	elected              float64       // share of new leaders around whom nodes crash
	quick                float64       // share of crashes after which the node is back within 3 ms
}

func (w *world) drawFaults() faults {
	return faults{
		drop:     pick(w, 0, 0.01, 0.1),
		double:   pick(w, 0, 0.02, 0.1),
		late:     pick(w, 0, 0.02, 0.1),
		slow:     pick(w, 0, 0.01, 0.03),
		crash:    pick(w, 0, 150*time.Millisecond, 400*time.Millisecond),
		cut:      pick(w, 0, 200*time.Millisecond, 600*time.Millisecond),
		transfer: pick(w, 0, 100*time.Millisecond, 400*time.Millisecond),
		split:    pick(w, 0, 0, time.Second),
		halt:     pick(w, 0, 0, 500*time.Millisecond),
		lull:     pick(w, 0, 500*time.Millisecond, time.Second),
		elected:  pick(w, 0, 0.2, 0.4),
		quick:    pick(w, 0.2, 0.8),
	}
}

func pick[T any](w *world, of ...T) T { return of[w.rng.IntN(len(of))] }

// unleash starts what goes wrong by itself.
func (w *world) unleash() {
	w.every(w.faults.crash, func() {
		for _, n := range w.nodes {
			// Mostly one node, at times two, or all of them: the power is gone.
			if w.chance(0.4) {
				w.crash(n)
			}
		}
	})
	w.every(w.faults.cut, func() { w.cut(w.between(0, 300*time.Millisecond)) })
	w.every(w.faults.split, func() { w.cut(w.between(200*time.Millisecond, time.Second)) })
	w.every(w.faults.halt, func() { w.halt(pick(w, w.nodes...)) })
	w.every(w.faults.transfer, w.transfer)
	w.every(w.faults.lull, func() { w.lull = w.now + w.between(50*time.Millisecond, 600*time.Millisecond) })
}

// every calls f at random times, as long as things go wrong.
func (w *world) every(mean time.Duration, f func()) {
	if mean == 0 {
		return
	}
	w.after(w.between(0, 2*mean), func() {
		if !w.healed {
			f()
			w.every(mean, f)
		}
	})
}

// crash ends a node between two passes, or in the middle of the next one.
func (w *world) crash(n *node) {
	if n.stepper == nil {
		return
	}
	life := n.life
	p := w.drawCrash(1 << 10)
	if w.chance(0.5) {
		n.disk.arm(p)
		// A node that writes too little for that crashes where it is.
		w.after(10*time.Millisecond, func() { w.crashNow(n, life, p.synced) })
	} else {
		w.crashNow(n, life, p.synced)
	}
}

// downtime returns how long a crashed node stays away.
func (w *world) downtime() time.Duration {
	if w.chance(w.faults.quick) {
		return w.between(0, 3*time.Millisecond)
	}
	return w.between(0, 250*time.Millisecond)
}

// drawCrash returns a crash point within so many bytes.
func (w *world) drawCrash(bytes int) crashPoint {
	return crashPoint{bytes: w.rng.IntN(bytes), atSync: w.chance(0.3), synced: w.chance(0.4)}
}

func (w *world) crashNow(n *node, life int, synced bool) {
	if n.alive(life) {
		n.disk.disarm()
		n.stop(n.disk.crash(synced))
	}
}

// elected crashes nodes around the birth of a leader, where votes matter.
func (w *world) elected(leader *node) {
	if w.healed || !w.chance(w.faults.elected) {
		return
	}
	w.after(w.between(0, 4*time.Millisecond), func() {
		for _, n := range w.nodes {
			if n == leader && w.chance(0.6) || w.chance(0.3) {
				w.crash(n)
			}
		}
	})
}

// link is one direction between two nodes.
type link struct{ from, to string }

// cut breaks links for a while: one, or all of a node, in one direction or both.
func (w *world) cut(wait time.Duration) {
	a, b := pick(w, w.nodes...), pick(w, w.nodes...)
	both, all := w.chance(0.5), w.chance(0.5)
	var links []link
	for _, n := range w.nodes {
		if n == a || !all && n != b {
			continue
		}
		links = append(links, link{a.name, n.name})
		if both {
			links = append(links, link{n.name, a.name})
		}
	}
	w.sever(links, wait)
}

func (w *world) sever(links []link, wait time.Duration) {
	w.trace("cut %v for %s", links, wait)
	for _, l := range links {
		w.broken[l]++
	}
	w.after(wait, func() {
		for _, l := range links {
			w.broken[l]--
		}
	})
}

// transfer hands a group over to a random node. At times the old leader hears of
// nothing that comes after, and takes itself for the leader still.
func (w *world) transfer() {
	group, to := pick(w, w.groups...), pick(w, w.nodes...)
	id := w.replica(group, to)
	for _, n := range w.nodes {
		if n != to && id != 0 && n.leads(group) {
			w.trace("transfer %d from %s to %s", group, n.name, to.name)
			n.stepper.Transfer(group, id, func(error) {})
			n.wake()
			if w.chance(0.5) {
				w.after(w.between(0, 5*time.Millisecond), func() { w.deafen(n) })
			}
		}
	}
}

// deafen breaks all links to a node for a while.
func (w *world) deafen(n *node) {
	var links []link
	for _, x := range w.nodes {
		links = append(links, link{x.name, n.name})
	}
	w.sever(links, w.between(0, 100*time.Millisecond))
}

// transmit takes a batch from one node to another, or loses it.
func (w *world) transmit(from, to *node, batch []byte) {
	sum := fnv.New64a()
	_, _ = sum.Write(batch) // never fails
	life := from.life
	copies := w.carry(from, to, func() { to.receive(from.name, life, batch) })
	w.trace("send %s to %s, %d times: %x", from.name, to.name, copies, sum.Sum64())
}

// carry has something arrive at another node: once, not at all, or twice. It
// returns how often.
func (w *world) carry(from, to *node, arrive func()) (copies int) {
	copies = 1
	if !w.healed {
		switch {
		case w.broken[link{from.name, to.name}] > 0, w.chance(w.faults.drop):
			copies = 0
		case w.chance(w.faults.double):
			copies = 2
		}
	}
	for range copies {
		wait := w.between(50*time.Microsecond, 2*time.Millisecond)
		if !w.healed && w.chance(w.faults.late) {
			wait = w.between(0, 100*time.Millisecond)
		}
		w.after(wait, arrive)
	}
	return copies
}
