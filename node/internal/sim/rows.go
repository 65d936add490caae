package sim

import (
	"bytes"
	"maps"
	"slices"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// did takes that an entry did what a write asks for.
func (h *history) did(group, index uint64, c *wire.Command) {
	t := h.tables[group]
	rows := map[string]api.Change{}
	each := wire.ReadChanges(c.Value)
	switch c.Op { //nolint:exhaustive // no other writes
	case api.OpPut, api.OpDelete:
		rows[c.Key] = api.Change{Value: c.Value, Delete: c.Op == api.OpDelete}
	case api.OpBatch:
		for each.Next() { // of those of one row the last counts
			rows[string(each.Key)] = api.Change{Value: each.Value, Delete: each.Delete}
		}
		if err := each.Err(); err != nil {
			h.find("group %d: entry %d: %v", group, index, err)
		}
	}
	t.entries[index-1].rows = rows
	for key := range rows {
		t.writes[key] = append(t.writes[key], index)
	}
}

// version returns the version that a row has once an entry is applied, 0 if there is
// no row then.
func (t *tableHistory) version(key string, index uint64) uint64 {
	behind, _ := slices.BinarySearch(t.writes[key], index+1)
	if behind == 0 {
		return 0
	}
	v := t.writes[key][behind-1]
	if t.entries[v-1].rows[key].Delete {
		return 0
	}
	return v
}

// since returns the first entry from floor on behind which these rows had these
// versions, all at once.
func (t *tableHistory) since(floor uint64, keys []string, rows map[string]table.Row) (uint64, bool) {
	for index := floor; index <= uint64(len(t.entries)); index++ {
		if !slices.ContainsFunc(keys, func(key string) bool { return t.version(key, index) != rows[key].Version }) {
			return index, true
		}
	}
	return 0, false
}

// read takes what a linearizable read of some rows, in one look, returned. floor is
// what newest was when it began.
func (h *history) read(group, floor uint64, keys []string, rows map[string]table.Row) {
	t := h.tables[group]
	for _, key := range keys {
		h.checkRow(group, key, rows[key])
	}
	index, ok := t.since(floor, keys, rows)
	if !ok {
		h.find("group %d: a read of %q gave versions %v, which are those of no one entry from %d on, which was there before it began",
			group, keys, versions(keys, rows), floor)
		return
	}
	t.newest = max(t.newest, index)
	for _, key := range keys {
		t.floors[key] = max(t.floors[key], rows[key].Version)
	}
}

func versions(keys []string, rows map[string]table.Row) []uint64 {
	list := make([]uint64, len(keys))
	for i, key := range keys {
		list[i] = rows[key].Version
	}
	return list
}

// checkRow holds a row against the entry that is to have written it.
func (h *history) checkRow(group uint64, key string, row table.Row) {
	t := h.tables[group]
	if row.Version == 0 {
		return
	}
	if row.Version <= uint64(len(t.entries)) {
		c, ok := t.entries[row.Version-1].rows[key]
		if ok && !c.Delete && bytes.Equal(c.Value, row.Value) {
			return
		}
	}
	h.find("group %d: row %q is %q at version %d, which is not what that entry wrote", group, key, row.Value, row.Version)
}

// shows takes all rows that a replica has on its disk, with how far it is applied:
// each must be as the entries up to there left it, and none from a later one.
func (h *history) shows(at replicaOf, applied uint64, rows map[string]table.Row) {
	t := h.tables[at.group]
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		h.checkRow(at.group, key, rows[key])
	}
	for _, key := range slices.Sorted(maps.Keys(t.writes)) {
		if v, want := rows[key].Version, t.version(key, applied); v != want {
			h.find("group %d: at entry %d replica %d has version %d of row %q, the last write to it gave version %d",
				at.group, applied, at.replica, v, key, want)
		}
	}
}

// rows returns all rows of a table as they are on this node.
func (n *node) rows(group uint64) (map[string]table.Row, error) {
	rows := map[string]table.Row{}
	lo := store.GroupKey(group, table.SubRow)
	err := n.db.Scan(lo, store.GroupEnd(group, table.SubRow), func(k, _ []byte) error {
		key := string(k[len(lo):])
		var err error
		rows[key], _, err = table.Get(n.db, api.TableID(group), key)
		return err
	})
	return rows, err
}

// compare gives the history the rows that this node has now.
func (n *node) compare(at replicaOf, applied uint64) error {
	rows, err := n.rows(at.group)
	if err != nil {
		return err
	}
	n.w.history.shows(at, applied, rows)
	return nil
}
