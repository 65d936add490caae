package sim

import (
	"crypto/sha256"
	"fmt"
	"time"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// history is what clients and replicas saw, checked as it comes. A finding is a
// broken promise.
type history struct {
	findings []string
	tables   map[uint64]*tableHistory
	leaders  map[termOf]uint64             // replica that led
	votes    map[termOf]map[uint64]uint64  // by voter: whom it voted for
	durable  map[replicaOf]durable         // what a restart must find again
	hashes   map[uint64]map[uint64]tableAt // by group and replica, at the end
	confs    map[entryOf]string            // configuration once an entry is applied
	reshapes bool                          // entries may be changes of the configuration, of which machines see nothing
}

type entryOf struct{ group, index uint64 }

type termOf struct{ group, term uint64 }

type replicaOf struct{ group, replica uint64 }

// durable is what a replica has on its disk for certain.
type durable struct {
	term, commit, applied uint64
}

// tableAt is a table at the end, on one replica.
type tableAt struct {
	applied uint64
	hash    [32]byte
}

// tableHistory is the one order of a table's entries, as the first replica to
// apply each of them showed it, and what clients know of it.
type tableHistory struct {
	entries []applied           // entry i+1
	first   map[[16]byte]uint64 // first entry of each request: the one that counts
	writes  map[string][]uint64 // entries that wrote or deleted each row
	acked   map[[16]byte]uint64 // versions that clients were told
	refused map[[16]byte]bool   // requests of which nothing may be done
	newest  uint64              // newest entry that a client saw the work of
	floors  map[string]uint64   // by key, the newest version that a client was told or read
	wants   map[[16]byte]want   // what clients asked for
}

type applied struct {
	sum    [32]byte
	rows   map[string]api.Change // what it did to each row; none if it did nothing
	answer table.Answer          // code and version
}

func newHistory(groups []uint64) *history {
	h := &history{
		tables:  map[uint64]*tableHistory{},
		leaders: map[termOf]uint64{},
		votes:   map[termOf]map[uint64]uint64{},
		durable: map[replicaOf]durable{},
		hashes:  map[uint64]map[uint64]tableAt{},
		confs:   map[entryOf]string{},
	}
	for _, g := range groups {
		h.tables[g] = &tableHistory{
			first:   map[[16]byte]uint64{},
			writes:  map[string][]uint64{},
			acked:   map[[16]byte]uint64{},
			refused: map[[16]byte]bool{},
			floors:  map[string]uint64{},
			wants:   map[[16]byte]want{},
		}
		h.hashes[g] = map[uint64]tableAt{}
	}
	return h
}

func (h *history) find(format string, args ...any) {
	h.findings = append(h.findings, fmt.Sprintf(format, args...))
}

// led takes that a replica leads. It voted for itself then.
func (h *history) led(at termOf, replica uint64) {
	if other, ok := h.leaders[at]; ok && other != replica {
		h.find("group %d has two leaders in term %d: %d and %d", at.group, at.term, other, replica)
	}
	h.leaders[at] = replica
	h.voted(at, replica, replica)
}

// voted takes that a replica gave its vote away.
func (h *history) voted(at termOf, voter, candidate uint64) {
	if h.votes[at] == nil {
		h.votes[at] = map[uint64]uint64{}
	}
	if other, ok := h.votes[at][voter]; ok && other != candidate {
		h.find("group %d: replica %d voted twice in term %d: for %d and %d", at.group, voter, at.term, other, candidate)
	}
	h.votes[at][voter] = candidate
}

// between takes which entry a replica expects next, 0 if it came by a snapshot, and
// which it applies. What lies between must be changes of the configuration.
func (h *history) between(at replicaOf, next, index uint64) {
	t := h.tables[at.group]
	if next == 0 {
		next = min(index, uint64(len(t.entries))+1)
	}
	if index != next && !h.reshapes || index < next {
		h.find("group %d: replica %d applies entry %d, and entry %d comes next", at.group, at.replica, index, next)
		return
	}
	// Those up to next it applied in a former life: if nobody showed them, they were
	// changes too.
	for i := min(next, uint64(len(t.entries))+1); i < index; i++ {
		switch n := uint64(len(t.entries)); {
		case i > n:
			t.entries = append(t.entries, applied{})
		case i >= next && t.entries[i-1].sum != [32]byte{}:
			h.find("group %d: replica %d applies entry %d, and left out entry %d", at.group, at.replica, index, i)
			return
		}
	}
}

// conf takes the configuration that a replica has once an entry is applied: it
// follows from the entries, so it is the same for all replicas and all lives.
func (h *history) conf(at replicaOf, index uint64, conf string) {
	e := entryOf{at.group, index}
	if was, known := h.confs[e]; known && was != conf {
		h.find("group %d: behind entry %d replica %d has the configuration %s, and another had %s", at.group, index, at.replica, conf, was)
	}
	h.confs[e] = conf
}

// apply takes an entry that a replica applied at a time, and what its machine
// answered.
func (h *history) apply(at replicaOf, e rafthost.Entry, a *table.Answer, now time.Duration) {
	t := h.tables[at.group]
	n := uint64(len(t.entries))
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %x", e.Term, e.Elapsed, e.Data))
	switch {
	case e.Index > n+1:
		h.find("group %d: replica %d applies entry %d, and nobody applied entry %d", at.group, at.replica, e.Index, n+1)
		return
	case e.Index <= n && t.entries[e.Index-1].sum != sum:
		h.find("group %d: entry %d of replica %d, of term %d, is not the one that another applied", at.group, e.Index, at.replica, e.Term)
		return
	}
	if len(e.Data) == 0 {
		if e.Index == n+1 {
			t.entries = append(t.entries, applied{sum: sum})
		}
		return
	}
	c, err := wire.DecodeCommand(e.Data)
	if err != nil {
		h.find("group %d: entry %d: %v", at.group, e.Index, err)
		return
	}
	if a == nil {
		h.find("group %d: replica %d gives no answer to entry %d", at.group, at.replica, e.Index)
		return
	}
	got := table.Answer{Code: a.Code, Version: a.Version}
	if e.Index == n+1 {
		t.entries = append(t.entries, applied{sum: sum, answer: got})
		if t.refused[c.ID] {
			h.find("group %d: request %s was refused as not done, and became entry %d", at.group, c.ID, e.Index)
		}
		h.judge(at.group, &c, got, now)
		return
	}
	if first := t.entries[e.Index-1].answer; got != first {
		h.find("group %d: replica %d answers entry %d with %+v, another answered %+v", at.group, at.replica, e.Index, got, first)
	}
}

// ack takes the answer to a write, and its version. floor is what newest was when
// the write was first sent.
func (h *history) ack(group uint64, c *wire.Command, floor, version uint64) {
	t := h.tables[group]
	if before, ok := t.acked[c.ID]; ok && before != version {
		h.find("group %d: request %s was answered twice: version %d, then %d", group, c.ID, before, version)
	}
	t.acked[c.ID] = version
	switch {
	case t.first[c.ID] != version || version == 0:
		h.find("group %d: request %s was acknowledged as entry %d, which does not hold it", group, c.ID, version)
		return
	case version <= floor:
		h.find("group %d: request %s became entry %d, though entry %d was acknowledged before it was sent", group, c.ID, version, floor)
	}
	t.newest = max(t.newest, version)
	for key := range t.entries[version-1].rows {
		t.floors[key] = max(t.floors[key], version)
	}
}

// refuse takes that a client was told that nothing of its request was done, and
// that it will not send it again.
func (h *history) refuse(group uint64, id [16]byte) {
	t := h.tables[group]
	t.refused[id] = true
	if v := t.first[id]; v != 0 {
		h.find("group %d: request %s was refused as not done, and is entry %d", group, id, v)
	}
}

// floor returns the newest version of a row that a client was told or read.
func (h *history) floor(group uint64, key string) uint64 { return h.tables[group].floors[key] }

// newest returns the newest entry of a table that a client saw the work of.
func (h *history) newest(group uint64) uint64 { return h.tables[group].newest }

// synced takes what a replica has on its disk after a sync.
func (h *history) synced(at replicaOf, d durable) { h.durable[at] = d }

// restarted takes what a replica found on its disk.
func (h *history) restarted(at replicaOf, d durable) {
	if was := h.durable[at]; d.term < was.term || d.commit < was.commit || d.applied < was.applied {
		h.find("group %d: replica %d came back at %+v, and had %+v on its disk", at.group, at.replica, d, was)
	}
}

// log takes the terms of the entries that a replica has on its disk.
func (h *history) log(at replicaOf, terms []uint64) {
	for i := 1; i < len(terms); i++ {
		if terms[i] < terms[i-1] {
			h.find("group %d: replica %d has entry %d of term %d behind one of term %d", at.group, at.replica, i+1, terms[i], terms[i-1])
			return
		}
	}
}

// rest takes a replica's table at the end: how far it is applied, its hash, and
// its rows.
func (h *history) rest(at replicaOf, end tableAt, rows map[string]table.Row) {
	t := h.tables[at.group]
	if h.reshapes && end.applied > 0 {
		h.between(at, 0, end.applied+1)
	}
	if n := uint64(len(t.entries)); end.applied != n {
		h.find("group %d: replica %d ends at entry %d, others applied entry %d", at.group, at.replica, end.applied, n)
	}
	for replica, other := range h.hashes[at.group] {
		if other.hash != end.hash {
			h.find("group %d: replicas %d and %d end with different tables", at.group, replica, at.replica)
			break
		}
	}
	h.hashes[at.group][at.replica] = end
	h.shows(at, end.applied, rows)
}

// acknowledged returns how many writes clients know to be done.
func (h *history) acknowledged() int {
	n := 0
	for _, t := range h.tables {
		n += len(t.acked)
	}
	return n
}
