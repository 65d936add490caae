package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"tidal/node/api"
)

// ErrNewer is what a decoder's error wraps when the bytes may be right, but are of
// a kind or version that only a later release knows.
var ErrNewer = errors.New("newer than this release")

// The flag bits of a command. Append only: a bit that this release does not know
// changes what the command does, so it is an error.
const (
	flagKeyed    = 1 << 0
	flagIfMatch  = 1 << 1
	flagIfAbsent = 1 << 2
	flagIfExists = 1 << 3
	flagsKnown   = flagKeyed | flagIfMatch | flagIfAbsent | flagIfExists
)

// Command is one write as the log of its table holds it.
type Command struct {
	Op       api.Op        // one that writes
	ID       api.RequestID // zero: the answer is not remembered
	Keyed    bool          // ID comes from a client's Idempotency-Key and is kept longer
	Hash     [16]byte      // RequestHash: tells another request under the same id
	Born     uint64        // highest index of the table that was known when it was accepted; 0: none
	IfMatch  []api.Version // the row's version must be one of these; empty: no condition
	IfAbsent bool          // the row must not exist
	IfExists bool          // the row must exist
	Key      string
	Value    []byte // of a put; of a batch what AppendChanges wrote, and no Key
}

// RequestHash returns what Hash must be for a command of that table: the first
// half of a SHA-256 over the table and all that the request asks for.
func (c *Command) RequestHash(table api.TableID) [16]byte {
	head := make([]byte, 0, 48+len(c.Key))
	head = binary.BigEndian.AppendUint64(head, uint64(table))
	head = append(head, byte(c.Op), c.flags()&^flagKeyed)
	head = appendTags(head, c.IfMatch)
	head = AppendString(head, c.Key)
	h := sha256.New()
	h.Write(head)
	h.Write(c.Value)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return [16]byte(sum[:16])
}

func (c *Command) flags() byte {
	var f byte
	if c.Keyed {
		f |= flagKeyed
	}
	if len(c.IfMatch) > 0 {
		f |= flagIfMatch
	}
	if c.IfAbsent {
		f |= flagIfAbsent
	}
	if c.IfExists {
		f |= flagIfExists
	}
	return f
}

// AppendCommand appends the stored form of c to dst.
func AppendCommand(dst []byte, c *Command) []byte {
	dst = slices.Grow(dst, 64+len(c.Key)+len(c.Value))
	dst = append(dst, recordVersion, byte(c.Op), c.flags())
	dst = append(dst, c.ID[:]...)
	dst = append(dst, c.Hash[:]...)
	dst = AppendUvarint(dst, c.Born)
	if len(c.IfMatch) > 0 {
		dst = appendTags(dst, c.IfMatch)
	}
	dst = AppendString(dst, c.Key)
	return AppendBytes(dst, c.Value)
}

// DecodeCommand reads the form of AppendCommand. Value aliases b. The error names
// the field that is wrong, or wraps ErrNewer.
func DecodeCommand(b []byte) (Command, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Command{}, fmt.Errorf("command: %w", err)
	}
	c := Command{Op: api.Op(r.Byte("op"))}
	flags := r.Byte("flags")
	switch {
	case r.Err() != nil:
		return Command{}, fmt.Errorf("command: %w", r.Err())
	case !c.Op.Writes():
		return Command{}, fmt.Errorf("command: op %d: %w", c.Op, ErrNewer)
	case flags&^byte(flagsKnown) != 0:
		return Command{}, fmt.Errorf("command: flags %#x: %w, which knows %#x", flags, ErrNewer, flagsKnown)
	case c.Op == api.OpBatch && flags&^flagKeyed != 0:
		return Command{}, fmt.Errorf("command: a batch with a condition: %w", ErrNewer)
	}
	c.Keyed = flags&flagKeyed != 0
	c.IfAbsent = flags&flagIfAbsent != 0
	c.IfExists = flags&flagIfExists != 0
	c.ID = r.Array16("request id")
	c.Hash = r.Array16("request hash")
	c.Born = r.Uvarint("born")
	if flags&flagIfMatch != 0 {
		c.IfMatch = r.tags("if-match")
	}
	c.Key = r.String("key", api.MaxKey)
	limit := api.MaxValue
	if c.Op == api.OpBatch {
		limit = api.MaxBatch
	}
	c.Value = r.Bytes("value", limit)
	if err := r.Done(); err != nil {
		return Command{}, fmt.Errorf("command: %w", err)
	}
	return c, nil
}
