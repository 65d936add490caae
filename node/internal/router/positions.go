package router

import (
	"sync"

	"tidal/node/api"
)

// maxPositions bounds the tables of which a position is remembered: more than a
// cluster may have. Past it, all are forgotten and met again.
const maxPositions = 20_000

// positions are the newest positions of tables that answers of other nodes told.
// The directory knows no more of a table without a replica here than what its
// owner said when it became that.
type positions struct {
	mu struct {
		sync.Mutex
		known map[api.TableID]uint64
	}
}

// meet takes a committed position.
func (p *positions) meet(at api.Position) {
	if at.Index == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known, old := p.mu.known[at.Table]
	if at.Index <= known {
		return
	}
	if p.mu.known == nil || !old && len(p.mu.known) >= maxPositions {
		p.mu.known = map[api.TableID]uint64{}
	}
	p.mu.known[at.Table] = at.Index
}

// newest returns the newest position met, 0 for none.
func (p *positions) newest(table api.TableID) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.known[table]
}
