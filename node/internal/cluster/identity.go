package cluster

import (
	"fmt"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// identityVersion is the first byte of the stored identity.
const identityVersion = 1

// Identity is who this node is: its disk for ever, its incarnation for this run.
type Identity struct {
	Disk        api.DiskID
	Incarnation api.Incarnation
	Formation   *wire.Formation // of the cluster it belongs to; nil: none yet
	Replica     uint64          // raft id in the meta group of a node that was admitted later; else 0
	Pass        uint64          // number of the last synced batch that the disk had before this run
}

// ReadIdentity reads the identity of the run before from the database; the zero
// Identity if there was none.
func ReadIdentity(db *store.DB) (Identity, error) {
	var id Identity
	v, found, err := db.Get(store.NodeKey(store.NodeIdentity))
	if err == nil && found {
		err = id.decode(v)
	}
	if err != nil || !found {
		return Identity{}, err
	}
	if id.Pass, err = db.LastPass(); err != nil {
		return Identity{}, err
	}
	v, found, err = db.Get(store.NodeKey(store.NodeFormation))
	if err != nil || !found {
		return id, err
	}
	f, err := wire.DecodeFormation(v)
	if err != nil {
		return Identity{}, fmt.Errorf("the member list on disk: %w", err)
	}
	id.Formation = &f
	id.Replica, err = loadAdmission(db)
	return id, err
}

// LoadIdentity reads the identity from the database and counts this start, both
// on the disk before it returns: no two runs of a disk have the same number. A
// new database becomes disk newDisk of the node. suffix tells copies of a disk
// apart. A disk of another node or another cluster is refused, and so is one that
// takes no part in its cluster any more, and nothing counted.
func LoadIdentity(db *store.DB, cluster, node string, newDisk api.DiskID, suffix uint32) (Identity, error) {
	id, err := ReadIdentity(db)
	if err != nil {
		return Identity{}, err
	}
	was := id.Incarnation.Node
	switch f := id.Formation; {
	case was != "" && was != node:
		return Identity{}, fmt.Errorf("the data directory belongs to node %q, and the configuration says %q: set node.id or node.data right", was, node)
	case f != nil && f.Cluster != cluster:
		return Identity{}, fmt.Errorf("the data directory belongs to cluster %q (id %s), and the configuration says %q: set cluster.name or node.data right",
			f.Cluster, f.ClusterID, cluster)
	case was == "":
		id.Disk = newDisk
	}
	if err := readFence(db); err != nil {
		return Identity{}, err
	}
	id.Incarnation = api.Incarnation{Node: node, Start: id.Incarnation.Start + 1, Suffix: suffix}
	b := db.NewBatch()
	b.Set(store.NodeKey(store.NodeIdentity), id.encode())
	b.SetPass(id.Pass + 1)
	return id, b.Commit(true)
}

func (id *Identity) encode() []byte {
	b := wire.AppendString([]byte{identityVersion}, id.Incarnation.Node)
	b = append(b, id.Disk[:]...)
	return wire.AppendUvarint(b, id.Incarnation.Start)
}

func (id *Identity) decode(v []byte) error {
	r := wire.NewReader(v)
	if version := r.Byte("version of the identity"); r.Err() == nil && version != identityVersion {
		return fmt.Errorf("the identity on disk is of version %d, this binary reads version %d", version, identityVersion)
	}
	id.Incarnation.Node = r.String("node id", api.MaxNode)
	id.Disk = r.Array16("disk id")
	id.Incarnation.Start = r.Uvarint("start counter")
	if err := r.Done(); err != nil {
		return fmt.Errorf("the identity on disk: %w", err)
	}
	return nil
}

// Hello is what this node says of itself to another.
func (c *Cluster) Hello(kind wire.ConnKind) wire.Hello {
	h := wire.Hello{
		Kind: kind, Cluster: c.o.Name, Disk: c.o.Identity.Disk, Incarnation: c.o.Identity.Incarnation,
		Pass: c.o.Identity.Pass, Version: c.o.Version, Min: c.o.Levels.Min, Max: c.o.Levels.Max,
	}
	if f := c.formation(); f != nil {
		h.ClusterID = f.ClusterID
	}
	return h
}

// Admit refuses a remote that cannot be what it says.
func (c *Cluster) Admit(remote wire.Hello) error {
	own, node := c.o.Identity, remote.Incarnation.Node
	f := c.formation()
	switch {
	case remote.Cluster != c.o.Name:
		return refusal("node %s is of cluster %q, node %s of cluster %q", node, remote.Cluster, c.o.Node, c.o.Name)
	case node == c.o.Node && remote.Incarnation != own.Incarnation:
		return refusal("node id %s is taken: %s runs here, %s called", node, own.Incarnation, remote.Incarnation)
	case node == c.o.Node:
		return nil // its own address, to prove it
	}
	if err := c.older(remote); err != nil && !c.o.AdmitOlder {
		return err
	}
	if f != nil && (remote.ClusterID.IsZero() || remote.ClusterID == f.ClusterID) {
		if err := c.apart(&remote); err != nil {
			return err
		}
	}
	switch {
	case f == nil || remote.ClusterID.IsZero():
		if remote.Kind == wire.ConnRaft {
			return refusal("node %s or node %s does not belong to a cluster yet", c.o.Node, node)
		}
		return nil // they talk about forming one
	case remote.ClusterID != f.ClusterID:
		return refusal("node %s belongs to cluster id %s, node %s to %s, both named %q: one of the two data directories is another cluster's",
			node, remote.ClusterID, c.o.Node, f.ClusterID, c.o.Name)
	}
	m, known := c.member(node)
	switch {
	case len(c.View().Members) == 0:
		return nil // this node has not read the members yet
	case c.View().Dead(remote.Disk):
		return &api.Error{
			Code: api.CodeWrongDisk, Message: fmt.Sprintf("disk %s of node %s was replaced, and is dead for ever", remote.Disk, node),
			Hint: "stop this process; node " + node + " is to run on the disk that took its place, and this data directory can be emptied",
		}
	case !c.metaLevel() && (!known || m.Disk != remote.Disk):
		return nil // it may be this node that has missed a change
	case !known:
		return refusal("node %s is not a member of cluster %q", node, c.o.Name)
	case m.Disk != remote.Disk:
		// This node may be an entry behind, so it is no proof.
		return refusal("node %s is known here with disk %s, and it says %s: its data was replaced", node, m.Disk, remote.Disk)
	}
	return nil
}
