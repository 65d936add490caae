package meta

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// Keys of the records. They are on disk: append only.
const (
	keyFormation   = "formation"
	keyNextTable   = "next/table"
	keyNextReplica = "next/replica"
	keyRotation    = "rotation"
	keyLevel       = "level"
	prefixLease    = "lease/"
	prefixMember   = "member/"
	prefixTable    = "table/"
	prefixDead     = "dead/"
	prefixRoll     = "roll/"
	prefixRevoked  = "revoked/"
	prefixSeen     = "seen/"
)

// counterVersion is the first byte of a counter's record.
const counterVersion = 1

// ErrFormed is returned by Genesis when the state is that of a cluster already.
var ErrFormed = errors.New("the cluster was formed before")

// Change is one record to store, or to delete if Value is nil.
type Change struct {
	Key, Value []byte
}

// State is the meta group's state.
type State struct {
	v *View // replaced by each change, never changed itself
}

// Load makes a state of its stored records, in any order; of none, the state of
// no cluster. An error means that a record is damaged or from a later release.
func Load(records iter.Seq2[[]byte, []byte]) (*State, error) {
	v := &View{}
	for k, value := range records {
		if err := v.load(string(k), value); err != nil {
			return nil, fmt.Errorf("meta record %q: %w", k, err)
		}
	}
	return &State{v: v}, nil
}

func (v *View) load(key string, value []byte) error {
	var err error
	switch {
	case key == keyFormation:
		v.Formation, err = wire.DecodeFormation(value)
	case key == keyNextTable:
		v.NextTable, err = decodeCounter(value)
	case key == keyNextReplica:
		v.NextReplica, err = decodeCounter(value)
	case key == keyLevel:
		v.Level, err = decodeCounter(value)
	case strings.HasPrefix(key, prefixMember):
		var m wire.Member
		m, err = wire.DecodeMember(value)
		v.putMember(m)
	case strings.HasPrefix(key, prefixLease):
		var l wire.Lease
		l, err = wire.DecodeLease(value)
		v.putLease(l)
	case strings.HasPrefix(key, prefixTable):
		var t wire.Table
		t, err = wire.DecodeTable(value)
		v.putTable(&t)
	case strings.HasPrefix(key, prefixDead):
		err = v.loadDead(strings.TrimPrefix(key, prefixDead), value)
	case strings.HasPrefix(key, prefixRoll):
		err = v.loadRoll(strings.TrimPrefix(key, prefixRoll), value)
	case key == keyRotation:
		v.Rotation, err = wire.DecodeRotation(value)
	case strings.HasPrefix(key, prefixRevoked):
		var r wire.Revocation
		r, err = wire.DecodeRevocation(value)
		v.putRevocation(r)
	case strings.HasPrefix(key, prefixSeen):
		var s wire.Sighting
		s, err = wire.DecodeSighting(value)
		v.putSeen(s)
	default:
		err = fmt.Errorf("of a kind %w", wire.ErrNewer)
	}
	return err
}

// Genesis makes the state of a cluster that forms now, and returns its records.
// It refuses a formation that has no cluster id, no members or too many, or
// members out of order.
func (s *State) Genesis(f wire.Formation) ([]Change, error) {
	if !s.v.Formation.ClusterID.IsZero() {
		return nil, ErrFormed
	}
	stored := wire.AppendFormation(nil, &f)
	f, err := wire.DecodeFormation(stored) // a copy, which its caller cannot change
	switch {
	case err != nil:
		return nil, err
	case len(f.Members) == 0 || len(f.Members) > wire.MaxFounders:
		return nil, fmt.Errorf("formation: %d members: want 1 to %d", len(f.Members), wire.MaxFounders)
	case f.ClusterID.IsZero():
		return nil, errors.New("formation: no cluster id")
	}
	v := &View{
		Formation:   f,
		NextTable:   uint64(api.MetaGroup) + 1,
		NextReplica: uint64(len(f.Members)) + 1,
		Level:       max(f.Level, 1),
	}
	changes := []Change{
		{[]byte(keyFormation), stored},
		{[]byte(keyNextTable), appendCounter(v.NextTable)},
		{[]byte(keyNextReplica), appendCounter(v.NextReplica)},
		{[]byte(keyLevel), appendCounter(v.Level)},
	}
	for _, m := range f.Members {
		changes = append(changes, v.putMember(wire.Member{
			Node: m.Node, Disk: m.Disk, Address: m.Address, Zone: m.Zone,
			Replica: f.Replica(m.Node), Voter: true,
		}))
	}
	s.v = v
	return changes, nil
}

// View returns the state as it is now.
func (s *State) View() *View { return s.v }

func appendCounter(n uint64) []byte { return wire.AppendUvarint([]byte{counterVersion}, n) }

func decodeCounter(b []byte) (uint64, error) {
	r := wire.NewReader(b)
	if version := r.Byte("version"); r.Err() == nil && version != counterVersion {
		return 0, fmt.Errorf("version %d: %w", version, wire.ErrNewer)
	}
	n := r.Uvarint("counter")
	return n, r.Done()
}
