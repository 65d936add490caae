package cluster

import (
	"fmt"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// fenceVersion is the first byte of the stored fence.
const fenceVersion = 1

// maxFence bounds what is read of a fence: two texts.
const maxFence = 4 << 10

// writeFence has a disk remember that it takes no part in its cluster any more. With
// each start its counters grow, and in the end nobody could tell it from the one that
// it was.
func writeFence(db *store.DB, why *api.Error) error {
	b := db.NewBatch()
	v := wire.AppendString([]byte{fenceVersion}, cut(why.Message))
	b.Set(store.NodeKey(store.NodeFence), wire.AppendString(v, cut(why.Hint)))
	return b.Commit(true)
}

func cut(s string) string { return s[:min(len(s), maxFence)] }

// readFence returns an *api.Error that says why a disk takes no part in its cluster any
// more, or nil if it does.
func readFence(db *store.DB) error {
	v, found, err := db.Get(store.NodeKey(store.NodeFence))
	if err != nil || !found {
		return err
	}
	r := wire.NewReader(v)
	if f := r.Byte("version of the fence"); r.Err() == nil && f != fenceVersion {
		return fmt.Errorf("the fence on disk is of version %d, this binary reads version %d", f, fenceVersion)
	}
	why := &api.Error{Code: api.CodeWrongDisk, Message: r.String("reason", maxFence), Hint: r.String("hint", maxFence)}
	if err := r.Done(); err != nil {
		return fmt.Errorf("the fence on disk: %w", err)
	}
	return why
}
