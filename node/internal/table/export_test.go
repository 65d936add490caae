package table

import (
	"fmt"
	"strings"
)

// Dump returns what the machine has in memory of the answers it keeps.
func (m *Machine) Dump() string {
	var b strings.Builder
	for _, l := range []*lifetime{&m.made, &m.keyed} {
		fmt.Fprintf(&b, "keep %s: forgotten %d, %d bytes:", l.keep, l.forgotten, l.bytes.Load())
		l.queue.all(func(q queued) {
			at, _ := m.ids.find(q.id)
			fmt.Fprintf(&b, " %s@%s=%d", strings.TrimRight(string(q.id[:]), "\x00"), q.at, at)
		})
		b.WriteByte('\n')
	}
	return b.String()
}

// Pending returns how many rows the machine keeps for batches not committed.
func (m *Machine) Pending() int { return len(m.pending) + len(m.fresh) }

// Kept returns how many answers are remembered, of both lifetimes, after checking
// that all who keep count agree.
func (m *Machine) Kept() int {
	n := 0
	for _, l := range []*lifetime{&m.made, &m.keyed} {
		in := 0
		l.queue.all(func(queued) { in++ })
		if l.bytes.Load() != int64(in)*idCost {
			return -1
		}
		n += in
	}
	if n != len(m.ids.mu.known) {
		return -1
	}
	return n
}

// IDCost is what one answer counts.
const IDCost = idCost
