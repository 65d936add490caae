package wire

import (
	"fmt"
	"slices"

	"tidal/node/api"
)

// What a change of a batch does. Append only: the numbers are in logs.
const (
	changeDelete = 0
	changePut    = 1
)

// minChange is the least that a change takes: what it does, and an empty key.
// changeBytes is what it takes beside its key and value, or nearly.
const (
	minChange   = 2
	changeBytes = 6
)

// AppendChanges appends the changes of a batch, as AppendRequest sends them and the
// Value of a command of OpBatch holds them.
func AppendChanges(dst []byte, changes []api.Change) []byte {
	n := 4
	for i := range changes {
		n += changeBytes + len(changes[i].Key) + len(changes[i].Value)
	}
	dst = AppendUvarint(slices.Grow(dst, n), uint64(len(changes)))
	for i := range changes {
		c := &changes[i]
		if c.Delete {
			dst = AppendString(append(dst, changeDelete), c.Key)
			continue
		}
		dst = AppendString(append(dst, changePut), c.Key)
		dst = AppendBytes(dst, c.Value)
	}
	return dst
}

// Changes reads what AppendChanges wrote, one change after the other, without
// allocating. Key, Value and Delete are the change that Next went to; the slices
// alias the input.
type Changes struct {
	Key    []byte
	Value  []byte
	Delete bool

	r    Reader
	left int
}

// ReadChanges returns a reader of a whole list of changes.
func ReadChanges(b []byte) Changes {
	c := Changes{r: Reader{b: b}}
	c.left = c.r.changes()
	return c
}

// changes reads the length of a list of changes.
func (r *Reader) changes() int {
	n := r.Count("changes", minChange)
	if n > api.MaxChanges {
		r.Fail("changes", fmt.Sprintf("%d of them, the limit is %d", n, api.MaxChanges))
		return 0
	}
	return n
}

// Len returns how many changes are left.
func (c *Changes) Len() int { return c.left }

// Next goes to the next change. It returns false at the end, or at something that
// is none: see Err.
func (c *Changes) Next() bool {
	if c.left == 0 {
		_ = c.r.Done() // remembered
		return false
	}
	c.left--
	kind := c.r.Byte("change")
	if kind > changePut {
		c.r.Fail("change", fmt.Sprintf("unknown: %d", kind))
	}
	c.Delete = kind == changeDelete
	c.Key, c.Value = c.r.Bytes("key", api.MaxKey), nil
	if !c.Delete {
		c.Value = c.r.Bytes("value", api.MaxValue)
	}
	return c.r.Err() == nil
}

// Err returns what was wrong with the list, once Next has returned false.
func (c *Changes) Err() error { return c.r.Err() }

// changeList reads a list of changes that more may follow. Values alias the input.
func (r *Reader) changeList() []api.Change {
	c := Changes{r: *r}
	c.left = c.r.changes()
	var list []api.Change
	if c.left > 0 {
		list = make([]api.Change, 0, c.left)
	}
	for c.left > 0 && c.Next() {
		list = append(list, api.Change{Key: string(c.Key), Value: c.Value, Delete: c.Delete})
	}
	*r = c.r
	return list
}
