package place

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tidal/node/api"
)

// Candidate is a node that may hold replicas of a new table.
type Candidate struct {
	Node string
	Zone string // "" is a zone like any other
	Load int    // replicas it holds
}

// Choose returns n nodes for the replicas of a new table: spread over zones
// first, then those with the least load, then in the order that seed draws. It
// fails with not-enough-nodes and the arithmetic.
func Choose(nodes []Candidate, n int, seed string) ([]string, error) {
	if n > len(nodes) {
		return nil, notEnough(nodes, n)
	}
	left := slices.Clone(nodes)
	inZone := map[string]int{}
	chosen := make([]string, 0, n)
	for range n {
		best := 0
		for i := range left {
			if better(left[i], left[best], inZone, seed) {
				best = i
			}
		}
		chosen = append(chosen, left[best].Node)
		inZone[left[best].Zone]++
		left = slices.Delete(left, best, best+1)
	}
	return chosen, nil
}

func better(a, b Candidate, inZone map[string]int, seed string) bool {
	return cmp.Or(
		cmp.Compare(inZone[a.Zone], inZone[b.Zone]),
		cmp.Compare(a.Load, b.Load),
		cmp.Compare(score(hash(seed), hash(b.Node)), score(hash(seed), hash(a.Node))),
		cmp.Compare(a.Node, b.Node),
	) < 0
}

func notEnough(nodes []Candidate, n int) error {
	names := make([]string, len(nodes))
	for i, c := range nodes {
		names[i] = c.Node
	}
	slices.Sort(names)
	have := "there are none"
	if len(names) > 0 {
		have = fmt.Sprintf("there are %d (%s)", len(names), strings.Join(names, ", "))
	}
	return &api.Error{
		Code:    api.CodeNotEnoughNodes,
		Message: fmt.Sprintf("%d replicas need %d nodes that are live and not draining, and %s", n, n, have),
		Hint:    fmt.Sprintf("add %d nodes, or ask for fewer replicas", n-len(names)),
	}
}

// Input is what ownership is computed from.
type Input struct {
	Nodes  []string // with a live lease that is not draining
	Tables []Table
}

// Table is a table with those who could own it.
type Table struct {
	ID      api.TableID
	Holders []string // nodes with a level voter of it, live or not
}

// Owners returns the node that should own each table, for all tables that a live
// node holds. A table goes to the holder it prefers that has room. The bound is
// the number of tables by the number of nodes that hold any, rounded up; it is a
// wish: where no holder has room the least loaded one takes the table. The order
// of the input does not matter.
func Owners(in Input) map[api.TableID]string {
	nodes := map[string]*load{}
	for _, n := range in.Nodes {
		nodes[n] = &load{node: n, hash: hash(n)}
	}
	tables := slices.Clone(in.Tables)
	slices.SortFunc(tables, func(a, b Table) int { return cmp.Compare(a.ID, b.ID) })
	holding, held := 0, 0
	for _, t := range tables {
		live := false
		for _, h := range t.Holders {
			n := nodes[h]
			if n == nil {
				continue
			}
			live = true
			if !n.holds {
				n.holds = true
				holding++
			}
		}
		if live {
			held++
		}
	}
	owners := make(map[api.TableID]string, held)
	if held == 0 {
		return owners
	}
	bound := (held + holding - 1) / holding
	for _, t := range tables {
		if n := pick(t, nodes, bound); n != nil {
			n.owned++
			owners[t.ID] = n.node
		}
	}
	return owners
}

// load is a node while tables are given out.
type load struct {
	node  string
	hash  uint64
	holds bool
	owned int
}

// pick returns the live holder that should own t, or nil if there is none.
func pick(t Table, nodes map[string]*load, bound int) *load {
	var best *load
	for _, h := range t.Holders {
		if n := nodes[h]; n != nil && (best == nil || before(t.ID, n, best, bound)) {
			best = n
		}
	}
	return best
}

// before reports whether a comes before b for a table: one with room before one
// without; of two with room the preferred, of two without the less loaded.
func before(id api.TableID, a, b *load, bound int) bool {
	aRoom, bRoom := a.owned < bound, b.owned < bound
	switch {
	case aRoom != bRoom:
		return aRoom
	case !aRoom && a.owned != b.owned:
		return a.owned < b.owned
	}
	x, y := score(uint64(id), a.hash), score(uint64(id), b.hash)
	return x > y || x == y && a.node < b.node
}

// Preference says how much a table prefers a node: where there is room, the node with
// the highest number should own it.
func Preference(id api.TableID, node string) uint64 { return score(uint64(id), hash(node)) }

// score says how much the thing numbered seed prefers a node. It is part of what
// nodes of different releases must agree on: it never changes.
func score(seed, node uint64) uint64 { return mix(mix(seed) ^ node) }

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hash is FNV-1a of 64 bits.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
