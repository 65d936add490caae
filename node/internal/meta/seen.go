package meta

import "tidal/node/internal/wire"

// Seen returns how far the disk of a node had come when that was last noted.
func (v *View) Seen(node string) (wire.Sighting, bool) { return find(v.seen, node, seenNode) }

func seenNode(s wire.Sighting) string { return s.Incarnation.Node }

func (v *View) putSeen(s wire.Sighting) Change {
	v.seen = put(v.seen, s, seenNode)
	return Change{Key: []byte(prefixSeen + seenNode(s)), Value: wire.AppendSighting(nil, &s)}
}

func (v *View) dropSeen(node string) Change {
	v.seen = drop(v.seen, node, seenNode)
	return Change{Key: []byte(prefixSeen + node)}
}

// note remembers how far a member's disk has come. It never goes back: what was
// noted of another disk, or of an earlier moment, changes nothing.
func (d *draft) note(s wire.Sighting) wire.MetaAnswer {
	m, known := d.Member(seenNode(s))
	if !known || m.Disk != s.Disk || s.Disk.IsZero() {
		return wire.MetaAnswer{}
	}
	old, noted := d.Seen(m.Node)
	if noted && old.Disk == s.Disk {
		if s.Incarnation.Start < old.Incarnation.Start || s.Pass < old.Pass || s.Incarnation.Start == old.Incarnation.Start && s.Pass == old.Pass {
			return wire.MetaAnswer{}
		}
	}
	d.record(d.putSeen(s))
	return wire.MetaAnswer{Changed: true}
}
