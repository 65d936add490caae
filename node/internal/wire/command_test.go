package wire_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

func commands() []wire.Command {
	return []wire.Command{
		{Op: api.OpPut, ID: api.RequestID{1, 2, 3}, Hash: [16]byte{9}, Key: "k", Value: []byte("v")},
		{Op: api.OpPut, ID: api.RequestID{0xff}, Keyed: true, Born: 1 << 40, Key: strings.Repeat("k", api.MaxKey)},
		{Op: api.OpDelete, Key: "gone", IfMatch: []api.Version{{Table: 2, Index: 77}, {Table: 1 << 50, Index: 1}}},
		{Op: api.OpBatch, ID: api.RequestID{7}, Value: wire.AppendChanges(nil, someChanges())},
		{Op: api.OpPut, Key: "new", IfAbsent: true, IfExists: true, IfMatch: make([]api.Version, api.MaxTags), Value: bytes.Repeat([]byte{0}, 300)},
	}
}

func TestCommandRoundTrip(t *testing.T) {
	for _, want := range commands() {
		got, err := wire.DecodeCommand(wire.AppendCommand(nil, &want))
		if err != nil {
			t.Errorf("%+v: %v", want, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// The form is in logs on disk: a change of it must be a new version.
func TestCommandForm(t *testing.T) {
	c := wire.Command{Op: api.OpPut, ID: api.RequestID{0: 1, 15: 2}, Keyed: true, Hash: [16]byte{0: 3, 15: 4}, Born: 300, IfMatch: []api.Version{{Table: 2, Index: 5}}, Key: "k", Value: []byte("v")}
	want := []byte{1, 3, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0xac, 2, 1, 2, 5, 1, 'k', 1, 'v'}
	if got := wire.AppendCommand(nil, &c); !bytes.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestDecodeCommandRefuses(t *testing.T) {
	good := wire.AppendCommand(nil, &commands()[0])
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for _, c := range []struct {
		name string
		in   []byte
		is   error
		says string
	}{
		{"nothing", nil, wire.ErrMalformed, "version"},
		{"later version", change(0, 2), wire.ErrNewer, "version 2"},
		{"a read", change(1, byte(api.OpGet)), wire.ErrNewer, "op 1"},
		{"later op", change(1, 99), wire.ErrNewer, "op 99"},
		{"later flag", change(2, 0x80), wire.ErrNewer, "flags 0x80"},
		{"cut", good[:20], wire.ErrMalformed, "request hash"},
		{"more", append(bytes.Clone(good), 0), wire.ErrMalformed, "after the end"},
		{"long key", wire.AppendCommand(nil, &wire.Command{Op: api.OpPut, Key: strings.Repeat("k", api.MaxKey+1)}), wire.ErrMalformed, "key"},
		{"no entity tag", conditional(0, nil), wire.ErrMalformed, "if-match"},
		{"too many entity tags", conditional(api.MaxTags+1, make([]byte, 2*(api.MaxTags+1))), wire.ErrMalformed, "17 entity tags"},
		{"batch with a condition", wire.AppendCommand(nil, &wire.Command{Op: api.OpBatch, IfExists: true}), wire.ErrNewer, "a batch with a condition"},
		{"huge value", append(bytes.Clone(good[:len(good)-2]), 0xff, 0xff, 0xff, 0xff, 0x0f), wire.ErrMalformed, "value"},
	} {
		_, err := wire.DecodeCommand(c.in)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %v with %q", c.name, err, c.is, c.says)
		}
	}
}

// conditional returns a command with a list of entity tags that says it has n.
func conditional(n byte, tags []byte) []byte {
	b := wire.AppendCommand(nil, &wire.Command{Op: api.OpPut})
	b[2] |= 1 << 1
	b = append(b[:len(b)-2], n)
	return append(append(b, tags...), 1, 'k', 0)
}

func TestRequestHash(t *testing.T) {
	base := wire.Command{Op: api.OpPut, Key: "k", Value: []byte("v")}
	same := base
	same.ID, same.Keyed, same.Born, same.Hash = api.RequestID{1}, true, 9, [16]byte{1}
	if base.RequestHash(2) != same.RequestHash(2) {
		t.Error("what is not part of the request changes its hash")
	}
	for name, c := range map[string]wire.Command{
		"op":        {Op: api.OpDelete, Key: "k", Value: []byte("v")},
		"value":     {Op: api.OpPut, Key: "k", Value: []byte("w")},
		"border":    {Op: api.OpPut, Key: "kv"},
		"if-match":  {Op: api.OpPut, Key: "k", Value: []byte("v"), IfMatch: []api.Version{{Table: 2, Index: 1}}},
		"tags":      {Op: api.OpPut, Key: "k", Value: []byte("v"), IfMatch: []api.Version{{Table: 2, Index: 1}, {Table: 2, Index: 2}}},
		"if-exists": {Op: api.OpPut, Key: "k", Value: []byte("v"), IfExists: true},
		"if-absent": {Op: api.OpPut, Key: "k", Value: []byte("v"), IfAbsent: true},
	} {
		if c.RequestHash(2) == base.RequestHash(2) {
			t.Errorf("%s does not change the hash", name)
		}
	}
	if base.RequestHash(3) == base.RequestHash(2) {
		t.Error("the table does not change the hash")
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range commands() {
		f.Add(wire.AppendCommand(nil, &c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := wire.DecodeCommand(b)
		if err != nil {
			return
		}
		again, err := wire.DecodeCommand(wire.AppendCommand(nil, &c))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v came back as %+v, %v", c, again, err)
		}
	})
}
