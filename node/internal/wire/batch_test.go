package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// The form is in logs on disk: a change of it must be a new operation.
func TestChangesForm(t *testing.T) {
	want := []byte{3, 1, 3, 'k', '/', '1', 1, 'v', 0, 3, 'k', '/', '2', 1, 3, 'k', '/', '3', 1, 'w'}
	if got := wire.AppendChanges(nil, someChanges()); !bytes.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestReadChanges(t *testing.T) {
	b := wire.AppendChanges(nil, someChanges())
	c := wire.ReadChanges(b)
	for i, want := range someChanges() {
		if c.Len() != 3-i || !c.Next() || string(c.Key) != want.Key || !bytes.Equal(c.Value, want.Value) || c.Delete != want.Delete {
			t.Errorf("change %d: %+v, want %+v", i, c, want)
		}
	}
	if c.Next() || c.Err() != nil {
		t.Errorf("after the end: %v", c.Err())
	}
	for cut := range b {
		if err := readAll(b[:cut]); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("cut after %d of %d bytes: %v", cut, len(b), err)
		}
	}
	many := wire.AppendChanges(nil, make([]api.Change, api.MaxChanges+1))
	if err := readAll(many); err == nil || !strings.Contains(err.Error(), "10001 of them, the limit is 10000") {
		t.Errorf("too many: %v", err)
	}
	q := someRequest()
	q.Op = api.OpBatch
	if _, err := wire.DecodeRequest(wire.AppendRequest(nil, q, now()), now()); err == nil || !strings.Contains(err.Error(), "a batch with a condition") {
		t.Errorf("a batch with a condition: %v", err)
	}
}

func readAll(b []byte) error {
	c := wire.ReadChanges(b)
	for c.Next() {
		continue
	}
	return c.Err()
}

func FuzzReadChanges(f *testing.F) {
	f.Add(wire.AppendChanges(nil, someChanges()))
	f.Add([]byte{1, 0, 2, 'k'})
	f.Fuzz(func(t *testing.T, b []byte) {
		var list []api.Change
		c := wire.ReadChanges(b)
		for c.Next() {
			list = append(list, api.Change{Key: string(c.Key), Value: c.Value, Delete: c.Delete})
		}
		if c.Err() != nil {
			return
		}
		again := wire.ReadChanges(wire.AppendChanges(nil, list))
		for _, want := range list {
			if !again.Next() || string(again.Key) != want.Key || !bytes.Equal(again.Value, want.Value) || again.Delete != want.Delete {
				t.Fatalf("%+v came back as %+v", want, again)
			}
		}
	})
}
