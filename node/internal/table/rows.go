package table

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// rowFormat is the first byte of a stored row.
const rowFormat = 1

// Row is a row of a table.
type Row struct {
	Version uint64 // index of the entry that wrote it
	Value   []byte
}

// Get reads a row, and whether there is one. The value is the caller's. An error
// means that the database failed or holds something that no row looks like.
func Get(db Reader, table api.TableID, key string) (Row, bool, error) {
	v, found, err := db.Get(rowKey(table, key))
	if err != nil || !found {
		return Row{}, false, err
	}
	row, err := decodeRow(v)
	if err != nil {
		return Row{}, false, fmt.Errorf("table %s: row %q: %w", table, key, err)
	}
	return row, true, nil
}

// decodeRow reads the stored form of a row, which the value aliases.
func decodeRow(v []byte) (Row, error) {
	r := wire.NewReader(v)
	if f := r.Byte("format"); r.Err() == nil && f != rowFormat {
		return Row{}, fmt.Errorf("format %d: %w", f, wire.ErrNewer)
	}
	row := Row{Version: r.Uvarint("version")}
	row.Value = r.Rest()
	return row, r.Err()
}

// Count returns how many rows a table has. It reads them all.
func Count(db Scanner, table api.TableID) (int, error) {
	n := 0
	lo, hi := store.GroupKey(uint64(table), SubRow), store.GroupEnd(uint64(table), SubRow)
	err := db.Scan(lo, hi, func(_, _ []byte) error {
		n++
		return nil
	})
	return n, err
}

// Hash returns a SHA-256 over everything that the machine of a table keeps: its
// rows, answers and clock. Replicas that applied the same entries have the same.
func Hash(db Scanner, table api.TableID) ([32]byte, error) {
	h := sha256.New()
	lo, hi := store.GroupKey(uint64(table), SubRow), store.GroupEnd(uint64(table), SubClock)
	err := db.Scan(lo, hi, func(k, v []byte) error {
		hashPart(h, k)
		hashPart(h, v)
		return nil
	})
	return [32]byte(h.Sum(nil)), err
}

// View is a look at all that the machine of a table keeps, as Hash sees it.
func View(db *store.DB, table api.TableID) (*store.View, error) {
	return db.View(store.GroupKey(uint64(table), SubRow), store.GroupEnd(uint64(table), SubClock))
}

// HashView is Hash for a view that View returned. It tells pace how many bytes it
// has read, again and again; an error of pace ends it.
func HashView(v *store.View, pace func(bytes int) error) ([32]byte, error) {
	h := sha256.New()
	for ok := v.Seek(nil); ok; ok = v.Next() {
		hashPart(h, v.Key())
		hashPart(h, v.Value())
		if err := pace(len(v.Key()) + len(v.Value())); err != nil {
			return [32]byte{}, err
		}
	}
	return [32]byte(h.Sum(nil)), v.Err()
}

// hashPart hashes b with its length, so that no two lists of parts look alike.
func hashPart(h hash.Hash, b []byte) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
	h.Write(b)
}

func rowKey(table api.TableID, key string) []byte {
	return append(store.GroupKey(uint64(table), SubRow), key...)
}

// appendRow appends the stored form of a row to v, which is empty.
func appendRow(v []byte, version uint64, value []byte) []byte {
	if n := 11 + len(value); cap(v) < n {
		v = make([]byte, 0, n)
	}
	v = append(v, rowFormat)
	v = wire.AppendUvarint(v, version)
	return append(v, value...)
}
