package ready

// Frontier is how far a leader that has applied an entry of its own term had
// committed. The zero frontier is no word from anybody.
type Frontier struct {
	Term  uint64
	Index uint64
}

// known reports whether a leader can have said this: its own term's entry is
// committed, so neither part is zero.
func (f Frontier) known() bool { return f.Term > 0 && f.Index > 0 }

// Latch remembers that a replica was level once. The zero value is that of a
// replica that nobody has told anything. Make a new one for each lease, and for
// the meta group at each start. It may be copied, and is not for use by many at
// once.
type Latch struct {
	goal  Frontier
	level bool
}

// Heard takes a leader's word. The first word of the highest term is the goal:
// later ones of that term do not move it away from a replica that runs after it.
func (l *Latch) Heard(f Frontier) {
	if f.known() && f.Term > l.goal.Term {
		l.goal = f
	}
}

// Applied takes how far the replica has applied, and returns whether it is level
// or was before. Call it after Heard as well as after applying.
func (l *Latch) Applied(index uint64) bool {
	if l.goal.known() && index >= l.goal.Index {
		l.level = true
	}
	return l.level
}

// Lead says that this replica leads and has applied an entry of its own term: it
// is level with itself.
func (l *Latch) Lead() { l.level = true }

// Level reports whether the replica was level once.
func (l *Latch) Level() bool { return l.level }

// Goal returns the frontier to reach, and whether there is one.
func (l *Latch) Goal() (Frontier, bool) { return l.goal, l.goal.known() }
