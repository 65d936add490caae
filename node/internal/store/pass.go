package store

import (
	"encoding/binary"
	"fmt"
)

// LastPass returns the number of the last synced batch that is in the database; 0:
// there was none.
func (d *DB) LastPass() (uint64, error) {
	v, found, err := d.Get(NodeKey(NodePass))
	if err != nil || !found {
		return 0, err
	}
	n, w := binary.Uvarint(v)
	if w <= 0 || w != len(v) {
		return 0, fmt.Errorf("the number of the last synced pass is damaged: %x", v)
	}
	return n, nil
}

// SetPass numbers a batch that is going to be synced. Since the log is one
// sequence, a database that has the number has all that was synced before.
func (b *Batch) SetPass(n uint64) { b.Set(NodeKey(NodePass), binary.AppendUvarint(nil, n)) }
