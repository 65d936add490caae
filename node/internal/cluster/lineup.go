package cluster

import (
	"math"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

// nobody is no node of a lineup.
const nobody = -1

// lineup is what a window needs to know of 10,000 tables and does not change from one
// look to the next: nodes are numbers in it, so that a look has no names to find. It
// is made anew for each view of the metadata.
type lineup struct {
	view    *meta.View
	nodes   []string // the members, and then others that tables name
	members []wire.Member
	numbers map[string]int16
	copies  []copied // of all replicas, table after table
	owners  []owned  // of each table, as of moves
	places  []int16  // of each table, as of placed
	moves   uint64   // of the directory
	placed  uint64   // of the placements
}

// copied is a replica in a lineup.
type copied struct {
	node    int16
	voter   bool
	current bool // else it went with its node's old disk
}

// owned is who owns a table, in a lineup.
type owned struct {
	node int16
	term uint64
}

// none is a count that no directory and no placements have.
const none = math.MaxUint64

// lineup returns the lineup of the view that is here now, up to date.
func (c *Cluster) lineup() *lineup {
	v := c.View()
	l := c.pictures.in
	if l == nil || l.view != v {
		l = newLineup(v)
	} else { // pictures hold the old one, and what is in it
		l = new(*l)
	}
	c.pictures.in = l
	owners := make([]owned, 0)
	l.moves = c.directory.read(c.o.Node, v.Tables, l.moves, func(i int, o owning) {
		if i == 0 {
			owners = make([]owned, len(v.Tables))
		}
		owners[i] = owned{l.number(o.node), o.term}
	})
	if len(owners) > 0 {
		l.owners = owners
	}
	if places, n := c.placesCounted(); n != l.placed {
		l.placed, l.places = n, make([]int16, len(v.Tables))
		for i, t := range v.Tables {
			l.places[i] = l.number(places[t.ID])
		}
	}
	return l
}

func newLineup(v *meta.View) *lineup {
	l := &lineup{view: v, members: v.Members, numbers: map[string]int16{}, moves: none, placed: none}
	for _, m := range v.Members {
		l.number(m.Node)
	}
	n := 0
	for _, t := range v.Tables {
		n += len(t.Replicas)
	}
	l.copies = make([]copied, 0, n)
	for _, t := range v.Tables {
		for _, r := range t.Replicas {
			newest, _ := t.Replica(r.Node)
			l.copies = append(l.copies, copied{l.number(r.Node), r.Voter, newest.ID == r.ID})
		}
	}
	return l
}

// number returns a node's number, and gives it one if it has none; "" is nobody.
func (l *lineup) number(node string) int16 {
	if node == "" {
		return nobody
	}
	n, known := l.numbers[node]
	if !known {
		n = int16(len(l.nodes))
		l.numbers[node], l.nodes = n, append(l.nodes, node)
	}
	return n
}

// name returns the node of a number, "" of nobody.
func (l *lineup) name(n int16) string {
	if n == nobody {
		return ""
	}
	return l.nodes[n]
}

// looking is what one goes through the tables with, in the order of their ids.
type looking struct {
	*lineup

	now     []seen   // the nodes
	states  [8]int   // tables, by the rank of their state
	copies  []copied // of the tables that are still to come
	is, was heights
	took    float64 // seconds between the two gatherings
	fresh   bool    // there is a gathering
}

// seen is a node while one goes through the tables.
type seen struct {
	leased    bool
	heard     bool
	positions cursor
	late      map[api.TableID]time.Duration
	load      api.Load
}

func (c *Cluster) newLooking(in *lineup, newest, older *gathering) *looking {
	l := &looking{lineup: in, copies: in.copies, now: make([]seen, len(in.nodes)), fresh: newest != nil}
	for i := range l.now {
		n, id := &l.now[i], in.nodes[i]
		if i < len(in.members) { // of one that is no member any more, nothing is known
			_, n.leased = in.view.Lease(id)
			n.heard = n.leased && (id == c.o.Node || c.silence(id) <= heardNow)
		}
		if newest != nil {
			s := newest.nodes[id]
			n.positions.rest, n.late = s.all, s.late
		}
	}
	if newest != nil {
		l.is.rest = newest.highest
	}
	if older != nil {
		l.was.rest, l.took = older.highest, newest.at.Sub(older.at).Seconds()
	}
	return l
}

// table fills in the table of that place among all. Each call is for the next one, and
// returns how many replicas of it say nothing of how far they are.
func (l *looking) table(x *sight, i int) (silent int) {
	x.of, x.in, x.place = l.view.Tables[i], l.lineup, l.places[i]
	all := l.copies[:len(x.of.Replicas)]
	l.copies = l.copies[len(all):]
	l.owner(x, l.owners[i], all)
	return l.lag(x, all)
}

// owner fills in a table's owner and state. An owner without a lease is none: what it
// said of itself is old.
func (l *looking) owner(x *sight, o owned, all []copied) {
	x.owner = nobody
	heard := false
	if o.node != nobody && l.now[o.node].leased {
		by := &l.now[o.node]
		x.owner, x.term, heard = o.node, o.term, by.heard
		by.load.Owned++
	}
	voters, live, moving := 0, 0, false
	for i, r := range all {
		n := &l.now[r.node]
		n.load.Held++
		moving = moving || x.of.Replicas[i].Leaving || !r.voter
		if r.voter {
			voters++
		}
		if r.voter && r.current && n.leased {
			live++
		}
	}
	switch {
	case live <= voters/2:
		x.state = api.TableNoQuorum
	case x.owner == nobody:
		x.state = api.TableNoOwner
	case !heard:
		x.state = api.TableUnsure
	case live < voters:
		x.state = api.TableDegraded
	case moving || x.owner != x.place:
		x.state = api.TableMoving
	default:
		x.state = api.TableServing
	}
	l.states[x.state.Rank()]++
}

// lag fills in how far a table and its replicas are, and how long its writes took, and
// returns how many replicas say nothing.
func (l *looking) lag(x *sight, all []copied) (silent int) {
	x.frontier, x.lag, x.writes, x.late = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	if !l.fresh {
		return len(all)
	}
	now, _ := l.is.at(x.of.ID)
	if now == 0 { // nobody knows how far the table is
		return len(all)
	}
	x.frontier = float64(now)
	for _, r := range all {
		p, here := l.now[r.node].positions.at(x.of.ID)
		if !here {
			silent++
			continue
		}
		if behind := float64(now - min(now, p.applied)); math.IsNaN(x.lag) || behind > x.lag {
			x.lag = behind
		}
	}
	if before, had := l.was.at(x.of.ID); had && l.took > 0 {
		x.writes = float64(now-min(now, before)) / l.took
	}
	if x.owner != nobody && len(l.now[x.owner].late) > 0 {
		if d := l.now[x.owner].late[x.of.ID]; d > 0 {
			x.late = d.Seconds()
		}
	}
	return silent
}
