package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/api"
	"tidal/node/internal/cluster"
	"tidal/node/internal/meta"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/raftlog"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// Stopped is the data directory of a node that does not run. Nothing on it is
// changed.
type Stopped struct {
	lock *directoryLock
	db   *store.DB
}

// OpenStopped opens a data directory to be read. Its error wraps ErrLocked if a
// node runs on it.
func OpenStopped(dir string) (*Stopped, error) {
	s := &Stopped{}
	if err := s.open(dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stopped) open(dir string) error {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is no data directory of a node: it has no file %s", dir, lockFile)
	}
	if err != nil {
		return fmt.Errorf("lock the data directory: %w", err)
	}
	s.lock = &directoryLock{f}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return heldBy(f, dir, err)
	}
	s.db, err = store.Open(filepath.Join(dir, databaseFolder), store.Options{ReadOnly: true})
	return err
}

// Close gives the directory back.
func (s *Stopped) Close() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// DiskIdentity is who a disk is.
type DiskIdentity struct {
	Node      string           `json:"node"`
	Disk      api.DiskID       `json:"disk"`
	Start     uint64           `json:"start"`  // how often the disk was started
	Pass      uint64           `json:"pass"`   // number of the last synced batch
	Format    uint64           `json:"format"` // of the layout; this binary reads up to ReadsUpTo
	ReadsUpTo uint64           `json:"reads_up_to"`
	Cluster   string           `json:"cluster,omitempty"` // absent: it belongs to none
	ClusterID *api.ClusterID   `json:"cluster_id,omitempty"`
	Founders  []api.DiskMember `json:"founders,omitempty"`
	Admitted  string           `json:"admitted_as,omitempty"` // raft id of a node that came later, in hex
}

// Identity reads who the disk is.
func (s *Stopped) Identity() (DiskIdentity, error) {
	id, err := cluster.ReadIdentity(s.db)
	if err != nil {
		return DiskIdentity{}, err
	}
	out := DiskIdentity{
		Node: id.Incarnation.Node, Disk: id.Disk, Start: id.Incarnation.Start, Pass: id.Pass, ReadsUpTo: store.Format,
	}
	v, _, err := s.db.Get(store.NodeKey(store.NodeFormat))
	if err != nil {
		return DiskIdentity{}, err
	}
	out.Format, _ = binary.Uvarint(v)
	if f := id.Formation; f != nil {
		out.Cluster, out.ClusterID = f.Cluster, &f.ClusterID
		for _, m := range f.Members {
			out.Founders = append(out.Founders, api.DiskMember{Node: m.Node, Disk: m.Disk, Address: m.Address})
		}
	}
	if id.Replica != 0 {
		out.Admitted = strconv.FormatUint(id.Replica, 16)
	}
	return out, nil
}

// State reads what each replica on the disk has.
func (s *Stopped) State() ([]api.DiskReplica, error) {
	groups, err := s.db.Groups()
	if err != nil {
		return nil, err
	}
	m, err := cluster.ReadMeta(s.db)
	if err != nil {
		return nil, err
	}
	out := []api.DiskReplica{}
	for _, g := range groups {
		r, err := s.replica(g, m.View())
		if errors.Is(err, raftlog.ErrNoReplica) {
			continue // what is left of one that was removed
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (s *Stopped) replica(group uint64, v *meta.View) (api.DiskReplica, error) {
	l, err := raftlog.Open(s.db, group, raftlog.NewCache(0))
	if err != nil {
		return api.DiskReplica{}, err
	}
	first, _ := l.FirstIndex() // neither fails
	last, _ := l.LastIndex()
	hard, applied := l.Hard(), l.Applied()
	r := api.DiskReplica{
		Group: api.TableID(group), Name: nameOf(group, v), Replica: inHex(l.Replica()),
		Term: hard.Term, Vote: inHex(hard.Vote), Commit: hard.Commit, Applied: applied.Index, AppliedTerm: applied.Term,
		First: first, Last: last, Rows: -1,
		Voters: allInHex(applied.Conf.GetVoters()), Learners: allInHex(applied.Conf.GetLearners()), Outgoing: allInHex(applied.Conf.GetVotersOutgoing()),
	}
	if group != uint64(api.MetaGroup) {
		r.Rows, err = table.Count(s.db, api.TableID(group))
	}
	return r, err
}

// nameOf returns what a group is called: meta, or its table's name if the metadata
// here knows it.
func nameOf(group uint64, v *meta.View) string {
	if group == uint64(api.MetaGroup) {
		return "meta"
	}
	if t, ok := v.Table(api.TableID(group)); ok {
		return t.Name
	}
	return ""
}

func inHex(id uint64) string { return strconv.FormatUint(id, 16) }

func allInHex(ids []uint64) []string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		out = append(out, inHex(id))
	}
	return out
}

// Log reads entries of a group's log, from an index on, at most limit of them. The
// group is a table's name or id, or meta.
func (s *Stopped) Log(group string, from uint64, limit int) ([]api.DiskEntry, error) {
	id, err := s.group(group)
	if err != nil {
		return nil, err
	}
	if _, err = raftlog.Replica(s.db, id); err != nil {
		return nil, fmt.Errorf("group %s: %w", group, err)
	}
	out := []api.DiskEntry{}
	err = s.db.Scan(store.EntryKey(id, from), store.GroupEnd(id, store.SubEntry), func(key, value []byte) error {
		if len(out) == limit {
			return store.ErrStop
		}
		e, bad := wire.DecodeEntry(binary.BigEndian.Uint64(key[len(key)-8:]), value)
		if bad != nil {
			return bad
		}
		out = append(out, api.DiskEntry{Index: e.GetIndex(), Term: e.GetTerm(), Kind: kindOf(id, e), Size: len(e.GetData())})
		return nil
	})
	return out, err
}

func (s *Stopped) group(name string) (uint64, error) {
	if name == "meta" {
		return uint64(api.MetaGroup), nil
	}
	m, err := cluster.ReadMeta(s.db)
	if err != nil {
		return 0, err
	}
	if t, ok := m.View().TableNamed(name); ok {
		return uint64(t.ID), nil
	}
	id, err := strconv.ParseUint(name, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("there is no table %s in the metadata on this disk", name)
	}
	return id, nil
}

// kindOf says what an entry is: raft's own empty one, a change of the
// configuration, a command of the metadata by its name, or a write.
func kindOf(group uint64, e *pb.Entry) string {
	switch {
	case e.GetType() != pb.EntryNormal:
		return "configuration"
	case len(e.GetData()) == 0:
		return "empty"
	case group != uint64(api.MetaGroup):
		return "write"
	}
	_, data, err := rafthost.Unstamp(e.GetData())
	if err != nil || len(data) == 0 {
		return "unreadable"
	}
	return wire.MetaKind(data[0]).String()
}
