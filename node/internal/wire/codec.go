package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is what every decoder's error wraps: the bytes are not of the
// format that they claim to be.
var ErrMalformed = errors.New("malformed")

// Reader takes values from the front of a slice. The first error sticks: later
// reads return zero values, so a decoder checks once, at the end. It never
// panics and allocates nothing for a length that the input does not hold.
type Reader struct {
	b   []byte
	err error
}

// NewReader returns a reader of b, which must not change while it is used.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err returns the first error, which names its field and wraps ErrMalformed.
func (r *Reader) Err() error { return r.err }

// Rest returns what has not been read; it aliases the input.
func (r *Reader) Rest() []byte { return r.b }

// Done returns the first error, or an error if bytes are left.
func (r *Reader) Done() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%w: %d bytes after the end", ErrMalformed, len(r.b))
	}
	return r.err
}

// Fail records why a field that was read is not acceptable, unless an error
// came before. It is for checks of a value that the reader cannot know.
func (r *Reader) Fail(field, why string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s: %s", ErrMalformed, field, why)
	}
	r.b = nil
}

// Uvarint reads a varint of up to 64 bits.
func (r *Reader) Uvarint(field string) uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case n > 0:
		r.b = r.b[n:]
		return v
	case n < 0:
		r.Fail(field, "the number has more than 64 bits")
	default:
		r.Fail(field, "the bytes end inside it")
	}
	return 0
}

// Byte reads one byte.
func (r *Reader) Byte(field string) byte {
	if b := r.take(field, 1); b != nil {
		return b[0]
	}
	return 0
}

// Bool reads a byte that must be 0 or 1.
func (r *Reader) Bool(field string) bool {
	b := r.Byte(field)
	if b > 1 {
		r.Fail(field, "neither 0 nor 1")
	}
	return b == 1
}

// Uint64 reads 8 bytes, big-endian: the form whose bytes sort as the numbers do.
func (r *Reader) Uint64(field string) uint64 {
	if b := r.take(field, 8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Array16 reads 16 bytes.
func (r *Reader) Array16(field string) (a [16]byte) {
	copy(a[:], r.take(field, len(a)))
	return a
}

// Bytes reads what AppendBytes wrote, of at most limit bytes. The result aliases
// the input; it is nil only after an error or when empty.
func (r *Reader) Bytes(field string, limit int) []byte {
	n := r.Uvarint(field)
	if r.err != nil {
		return nil
	}
	if n > uint64(limit) {
		r.Fail(field, fmt.Sprintf("%d bytes, the limit is %d", n, limit))
		return nil
	}
	return r.take(field, int(n))
}

// String reads what AppendString wrote, of at most limit bytes.
func (r *Reader) String(field string, limit int) string { return string(r.Bytes(field, limit)) }

// Count reads the length of a list whose items take at least size bytes each, so
// that a list may be allocated at its full length without trusting the sender.
func (r *Reader) Count(field string, size int) int {
	n := r.Uvarint(field)
	if n > uint64(len(r.b)/size) {
		r.Fail(field, fmt.Sprintf("a list of %d does not fit in the %d bytes left", n, len(r.b)))
		return 0
	}
	return int(n)
}

// take returns the next n bytes, or nil after an error or when n is 0.
func (r *Reader) take(field string, n int) []byte {
	if r.err != nil || n == 0 {
		return nil
	}
	if n > len(r.b) {
		r.Fail(field, fmt.Sprintf("%d bytes wanted, %d left", n, len(r.b)))
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// AppendUvarint appends v as Uvarint reads it.
func AppendUvarint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

// AppendUint64 appends v as Uint64 reads it.
func AppendUint64(dst []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(dst, v) }

// AppendBytes appends the length of b as a varint, then b.
func AppendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// AppendString appends s as AppendBytes appends bytes.
func AppendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// AppendBool appends 1 for true and 0 for false.
func AppendBool(dst []byte, v bool) []byte { //nolint:revive // the flag is what it writes
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}
