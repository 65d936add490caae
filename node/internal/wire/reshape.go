package wire

import (
	"fmt"

	"tidal/node/api"
)

// appendReshape appends the fields of a command that changes who holds what.
func appendReshape(dst []byte, c *MetaCommand) []byte {
	switch c.Kind { //nolint:exhaustive // the others have their fields in AppendMetaCommand
	case MetaAdmitNode:
		dst = AppendBool(appendFounder(dst, &c.Joiner), c.Known)
	case MetaReplaceDisk:
		dst = AppendString(dst, c.Node)
	case MetaMoveReplica:
		dst = AppendUvarint(dst, uint64(c.Table))
		dst = AppendString(AppendString(dst, c.From), c.To)
	case MetaSettleTable:
		dst = AppendUvarint(AppendUvarint(dst, uint64(c.Table)), c.Index)
		dst = appendIDs(appendIDs(dst, c.Voters), c.Learners)
	}
	return dst
}

func readReshape(r *Reader, c *MetaCommand) {
	switch c.Kind { //nolint:exhaustive // the others are read in DecodeMetaCommand
	case MetaAdmitNode:
		c.Joiner = readFounder(r)
		c.Known = r.Bool("known")
	case MetaReplaceDisk:
		c.Node = r.String("node", api.MaxNode)
	case MetaMoveReplica:
		c.Table = api.TableID(r.Uvarint("table"))
		c.From = r.String("from", api.MaxNode)
		c.To = r.String("to", api.MaxNode)
	case MetaSettleTable:
		c.Table = api.TableID(r.Uvarint("table"))
		c.Index = r.Uvarint("position")
		c.Voters, c.Learners = r.ids("voter"), r.ids("learner")
	}
}

func appendFounder(dst []byte, m *Founder) []byte {
	dst = AppendString(dst, m.Node)
	dst = append(dst, m.Disk[:]...)
	return AppendString(AppendString(dst, m.Address), m.Zone)
}

func readFounder(r *Reader) Founder {
	return Founder{
		Node:    r.String("member node", api.MaxNode),
		Disk:    r.Array16("member disk"),
		Address: r.String("member address", maxAddress),
		Zone:    r.String("member zone", maxZone),
	}
}

func appendIDs(dst []byte, ids []uint64) []byte {
	dst = AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = AppendUvarint(dst, id)
	}
	return dst
}

func (r *Reader) ids(field string) []uint64 {
	n := r.Count(field+"s", 1)
	if n == 0 {
		return nil
	}
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = r.Uvarint(field)
	}
	return ids
}

// JoinRequest is what a node with an empty disk says when it asks a member to be
// admitted; the hello says the rest.
type JoinRequest struct {
	Address string // URL under which others reach it
	Zone    string
	Known   bool // it was not told to join: it may be a member whose disk is new
}

// AppendJoinRequest appends j.
func AppendJoinRequest(dst []byte, j *JoinRequest) []byte {
	dst = AppendString(append(dst, recordVersion), j.Address)
	return AppendBool(AppendString(dst, j.Zone), j.Known)
}

// DecodeJoinRequest reads what AppendJoinRequest wrote.
func DecodeJoinRequest(b []byte) (JoinRequest, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return JoinRequest{}, fmt.Errorf("request to join: %w", err)
	}
	j := JoinRequest{Address: r.String("address", maxAddress), Zone: r.String("zone", maxZone), Known: r.Bool("known")}
	if err := r.Done(); err != nil {
		return JoinRequest{}, fmt.Errorf("request to join: %w", err)
	}
	return j, nil
}

// Admission makes a node a member. The node stores it.
type Admission struct {
	Formation Formation // of the cluster, as it was when that formed
	Replica   uint64    // raft id of the node's replica of the meta group
}

// AppendAdmission appends a.
func AppendAdmission(dst []byte, a *Admission) []byte {
	dst = AppendUvarint(append(dst, recordVersion), a.Replica)
	return AppendFormation(dst, &a.Formation)
}

// DecodeAdmission reads what AppendAdmission wrote.
func DecodeAdmission(b []byte) (Admission, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Admission{}, fmt.Errorf("admission: %w", err)
	}
	a := Admission{Replica: r.Uvarint("replica")}
	rest := r.Rest()
	if err := r.Err(); err != nil {
		return Admission{}, fmt.Errorf("admission: %w", err)
	}
	var err error
	a.Formation, err = DecodeFormation(rest)
	return a, err
}

// Roster is who the members are, as a node tells one that may have missed changes
// of them: without it that one could refuse the very node that leads the meta group.
type Roster struct {
	Next    uint64 // id of the next replica: of two rosters the higher is the newer
	Term    uint64 // of the meta group's leader, if it is the one that tells; else 0
	Index   uint64 // and what it has committed
	Members []Member
}

// AppendRoster appends l.
func AppendRoster(dst []byte, l *Roster) []byte {
	dst = AppendUvarint(append(dst, recordVersion), l.Next)
	dst = AppendUvarint(AppendUvarint(dst, l.Term), l.Index)
	dst = AppendUvarint(dst, uint64(len(l.Members)))
	for i := range l.Members {
		dst = appendMember(dst, &l.Members[i])
	}
	return dst
}

// DecodeRoster reads what AppendRoster wrote.
func DecodeRoster(b []byte) (Roster, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Roster{}, fmt.Errorf("roster: %w", err)
	}
	l := Roster{Next: r.Uvarint("next replica"), Term: r.Uvarint("term"), Index: r.Uvarint("index")}
	l.Members = make([]Member, r.Count("members", 26))
	for i := range l.Members {
		l.Members[i] = readMember(r)
	}
	if err := r.Done(); err != nil {
		return Roster{}, fmt.Errorf("roster: %w", err)
	}
	return l, nil
}
