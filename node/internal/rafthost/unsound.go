package rafthost

import (
	"errors"
	"fmt"

	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

var errUnsound = errors.New("the replica here differs from the others: it gives its state to nobody")

// MarkUnsound notes that a group's replica differs from most others: no snapshot of its
// state leaves this node. It lasts until another state takes its place, which whoever
// marked it removes store.UnsoundKey for.
func MarkUnsound(b *store.Batch, group, replica uint64) {
	b.Set(store.UnsoundKey(group), wire.AppendUvarint(nil, replica))
}

// Unsound reports whether a group's replica is marked.
func Unsound(db *store.DB, group, replica uint64) (bool, error) {
	v, found, err := db.Get(store.UnsoundKey(group))
	if err != nil || !found {
		return false, err
	}
	in := wire.NewReader(v)
	marked := in.Uvarint("replica")
	if err := in.Done(); err != nil {
		return false, fmt.Errorf("the fence of group %d: %w", group, err)
	}
	return marked == replica, nil
}
