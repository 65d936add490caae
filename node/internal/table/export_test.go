package table

import (
	"fmt"
	"strings"
)

// Dump returns what the machine has in memory of the answers it keeps.
func (m *Machine) Dump() string {
	var b strings.Builder
	for _, l := range []*lifetime{&m.made, &m.keyed} {
		fmt.Fprintf(&b, "keep %s: forgotten %d:", l.keep, l.forgotten)
		for _, q := range l.queue[l.head:] {
			a := m.answers[q.id]
			fmt.Fprintf(&b, " %s@%s=%d", strings.TrimRight(string(q.id[:]), "\x00"), q.at, a.index)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Pending returns how many rows the machine keeps for batches not committed.
func (m *Machine) Pending() int { return len(m.pending) }
