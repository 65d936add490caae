package wire_test

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"tidal/node/internal/wire"
)

func TestReader(t *testing.T) {
	var b []byte
	b = wire.AppendUvarint(b, math.MaxUint64)
	b = append(b, 7)
	b = wire.AppendBool(b, true)
	b = wire.AppendBool(b, false)
	b = wire.AppendUint64(b, 1<<40)
	b = append(b, "0123456789abcdef"...)
	b = wire.AppendBytes(b, []byte("bytes"))
	b = wire.AppendString(b, "")
	b = wire.AppendUvarint(b, 2)
	b = append(b, 'x', 'y')

	r := wire.NewReader(b)
	if v := r.Uvarint("u"); v != math.MaxUint64 {
		t.Errorf("uvarint %d", v)
	}
	if v := r.Byte("b"); v != 7 {
		t.Errorf("byte %d", v)
	}
	if !r.Bool("t") || r.Bool("f") {
		t.Error("bools")
	}
	if v := r.Uint64("w"); v != 1<<40 {
		t.Errorf("uint64 %d", v)
	}
	if v := r.Array16("a"); string(v[:]) != "0123456789abcdef" {
		t.Errorf("array %q", v)
	}
	if v := r.Bytes("s", 5); string(v) != "bytes" {
		t.Errorf("bytes %q", v)
	}
	if v := r.String("e", 0); v != "" {
		t.Errorf("string %q", v)
	}
	if n := r.Count("l", 1); n != 2 {
		t.Errorf("count %d", n)
	}
	if err := r.Done(); err == nil || !strings.Contains(err.Error(), "2 bytes after the end") {
		t.Errorf("done with two bytes left: %v", err)
	}
	if v := r.Rest(); !bytes.Equal(v, []byte("xy")) {
		t.Errorf("rest %q", v)
	}
}

func TestReaderErrors(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
		read func(*wire.Reader)
		want string
	}{
		{"uvarint ends", []byte{0x80}, func(r *wire.Reader) { r.Uvarint("term") }, "malformed: term: the bytes end inside it"},
		{"uvarint too long", bytes.Repeat([]byte{0xff}, 11), func(r *wire.Reader) { r.Uvarint("term") }, "malformed: term: the number has more than 64 bits"},
		{"no byte", nil, func(r *wire.Reader) { r.Byte("kind") }, "malformed: kind: 1 bytes wanted, 0 left"},
		{"bool", []byte{2}, func(r *wire.Reader) { r.Bool("full") }, "malformed: full: neither 0 nor 1"},
		{"array", make([]byte, 15), func(r *wire.Reader) { r.Array16("id") }, "malformed: id: 16 bytes wanted, 15 left"},
		{"length past the end", []byte{5, 'a'}, func(r *wire.Reader) { r.Bytes("key", 10) }, "malformed: key: 5 bytes wanted, 1 left"},
		{"length past the limit", append([]byte{11}, make([]byte, 11)...), func(r *wire.Reader) { r.String("key", 10) }, "malformed: key: 11 bytes, the limit is 10"},
		{"list", []byte{4, 0, 0, 0}, func(r *wire.Reader) { r.Count("nodes", 1) }, "malformed: nodes: a list of 4 does not fit in the 3 bytes left"},
		{"first error sticks", []byte{2, 3}, func(r *wire.Reader) { r.Bool("one"); r.Bool("two"); r.Fail("three", "no") }, "malformed: one: neither 0 nor 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := wire.NewReader(test.in)
			test.read(r)
			err := r.Done()
			if err == nil || err.Error() != test.want || !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if r.Uvarint("later") != 0 || r.Bytes("later", 10) != nil || r.Count("later", 1) != 0 {
				t.Error("a failed reader still gives values")
			}
		})
	}
}

// allocated returns how many bytes f allocates, and what else allocates meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestReaderDoesNotTrustLengths reads lengths far beyond the input.
func TestReaderDoesNotTrustLengths(t *testing.T) {
	large := wire.AppendUvarint(nil, 1<<30)
	if n := allocated(func() {
		wire.NewReader(large).Bytes("value", math.MaxInt)
		wire.NewReader(large).Count("list", 1)
	}); n > 1<<20 {
		t.Errorf("%d bytes were allocated for lengths", n)
	}
	huge := wire.AppendUvarint(nil, math.MaxUint64)
	if wire.NewReader(huge).Bytes("value", math.MaxInt) != nil {
		t.Error("2^64-1 bytes were believed")
	}
	r := wire.NewReader(huge)
	if r.Count("list", 1) != 0 || r.Err() == nil {
		t.Error("a list of 2^64-1 was believed")
	}
}

// TestBytesDoNotGrowIntoTheInput appends to what a reader gave.
func TestBytesDoNotGrowIntoTheInput(t *testing.T) {
	in := append(wire.AppendBytes(nil, []byte("ab")), "cd"...)
	got := wire.NewReader(in).Bytes("x", 2)
	_ = append(got, 'X')
	if string(in[3:]) != "cd" {
		t.Errorf("the input became %q", in)
	}
}
