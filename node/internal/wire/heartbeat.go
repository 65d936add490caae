package wire

import (
	"time"

	"tidal/node/api"
)

const heartbeatFormat = 1

// Owned is a table that the sender of a heartbeat owns.
type Owned struct {
	Table   api.TableID
	Term    uint64 // in which it owns the table
	Replica uint64 // its raft id there
	// Frontier is the commit index that the owner had when it said so, having
	// applied an entry of its own term.
	Frontier uint64
}

// Heartbeat is what a node tells each peer every interval.
type Heartbeat struct {
	Seq   uint64        // counts the heartbeats of one connection from 1
	Pass  uint64        // the sender's last synced pass
	Full  bool          // Owned is all; else it is what came since the last one
	Owned []Owned       // tables owned
	Gone  []api.TableID // tables no longer owned
	Hears []string      // nodes that the sender hears
	// Age is how long ago the sender's loop last finished a turn, in whole
	// milliseconds: it finishes one every 100 ms at least. One that stands still
	// can neither own a table nor answer for one.
	Age time.Duration
	// Crowded says that the sender's disk has hardly any space left: it takes no
	// entries of tables.
	Crowded bool
	// SpentMade and SpentKeyed say that the sender remembers as many answers to writes
	// as it may: of ids that nodes made, and of those from clients' keys.
	SpentMade, SpentKeyed bool
	// Fenced are the tables whose replicas on the sender differ from others and serve
	// nothing.
	Fenced []api.TableID
}

// AppendHeartbeat appends h.
func AppendHeartbeat(dst []byte, h *Heartbeat) []byte {
	dst = append(dst, heartbeatFormat)
	dst = AppendUvarint(dst, h.Seq)
	dst = AppendUvarint(dst, h.Pass)
	dst = AppendBool(dst, h.Full)
	dst = AppendUvarint(dst, uint64(len(h.Owned)))
	for _, o := range h.Owned {
		dst = AppendUvarint(dst, uint64(o.Table))
		dst = AppendUvarint(dst, o.Term)
		dst = AppendUvarint(dst, o.Replica)
		dst = AppendUvarint(dst, o.Frontier)
	}
	dst = AppendUvarint(dst, uint64(len(h.Gone)))
	for _, t := range h.Gone {
		dst = AppendUvarint(dst, uint64(t))
	}
	dst = AppendUvarint(dst, uint64(len(h.Hears)))
	for _, n := range h.Hears {
		dst = AppendString(dst, n)
	}
	dst = AppendBool(AppendUvarint(dst, millis(h.Age)), h.Crowded)
	dst = AppendUvarint(AppendBool(AppendBool(dst, h.SpentMade), h.SpentKeyed), uint64(len(h.Fenced)))
	for _, t := range h.Fenced {
		dst = AppendUvarint(dst, uint64(t))
	}
	return dst
}

// DecodeHeartbeat reads what AppendHeartbeat of this or a later release wrote;
// what a later one added at the end is skipped.
func DecodeHeartbeat(b []byte) (*Heartbeat, error) {
	r := NewReader(b)
	r.format("heartbeat format", heartbeatFormat)
	h := &Heartbeat{Seq: r.Uvarint("sequence"), Pass: r.Uvarint("pass"), Full: r.Bool("full")}
	if n := r.Count("owned tables", 4); n > 0 {
		h.Owned = make([]Owned, n)
	}
	for i := range h.Owned {
		h.Owned[i] = Owned{
			Table:   api.TableID(r.Uvarint("owned table")),
			Term:    r.Uvarint("owned table's term"),
			Replica: r.Uvarint("owned table's replica"),

			Frontier: r.Uvarint("owned table's frontier"),
		}
	}
	if n := r.Count("tables no longer owned", 1); n > 0 {
		h.Gone = make([]api.TableID, n)
	}
	for i := range h.Gone {
		h.Gone[i] = api.TableID(r.Uvarint("table no longer owned"))
	}
	if n := r.Count("nodes heard", 1); n > 0 {
		h.Hears = make([]string, n)
	}
	for i := range h.Hears {
		h.Hears[i] = r.String("node heard", api.MaxNode)
	}
	h.Age = r.millis("age of the last turn")
	h.Crowded = r.Bool("crowded")
	h.SpentMade, h.SpentKeyed = r.Bool("answers of nodes"), r.Bool("answers of keys")
	if n := r.Count("fenced tables", 1); n > 0 {
		h.Fenced = make([]api.TableID, n)
	}
	for i := range h.Fenced {
		h.Fenced[i] = api.TableID(r.Uvarint("fenced table"))
	}
	if r.Err() != nil {
		return nil, r.Err()
	}
	return h, nil
}
