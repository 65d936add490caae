package wire_test

import (
	"errors"
	"reflect"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

func someClientRequest() *wire.ClientRequest {
	return &wire.ClientRequest{Idem: "key", Request: api.Request{
		Op: api.OpPut, Table: "orders", Key: "k/1", Value: []byte("value"), Local: true, Born: api.Position{Table: 2, Index: 77},
		IfMatch: []api.Version{{Table: 2, Index: 70}}, IfExists: true, IfNoneMatch: true,
	}}
}

// TestClientFormats: what a client may say travels, and nothing else does: the node
// itself says who asks, and when.
func TestClientFormats(t *testing.T) {
	q := someClientRequest()
	told := *q
	told.ID, told.Keyed, told.Hops, told.Principal = api.RequestID{1}, true, 3, api.Principal{Name: "root", Role: api.RoleAdmin}
	told.Deadline = now()
	b := wire.AppendClientRequest(nil, &told)
	if got, err := wire.DecodeClientRequest(b); err != nil || !reflect.DeepEqual(got, q) {
		t.Errorf("%+v came back as %+v, %v", q, got, err)
	}
	plain := &wire.ClientRequest{Request: api.Request{Op: api.OpGet, Table: "t", Key: "k"}}
	if got, err := wire.DecodeClientRequest(wire.AppendClientRequest(nil, plain)); err != nil || !reflect.DeepEqual(got, plain) {
		t.Errorf("%+v came back as %+v, %v", plain, got, err)
	}
	p := &wire.ClientResponse{Response: *someResponse(), Position: api.Position{Table: 2, Index: 80}}
	c := wire.AppendClientResponse(nil, p)
	if got, err := wire.DecodeClientResponse(c); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v came back as %+v, %v", p, got, err)
	}
	for cut := range b {
		if _, err := wire.DecodeClientRequest(b[:cut]); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("a request cut after %d of %d bytes: %v", cut, len(b), err)
		}
	}
	for cut := range c {
		if _, err := wire.DecodeClientResponse(c[:cut]); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("a response cut after %d of %d bytes: %v", cut, len(c), err)
		}
	}
	b[1] |= 1 << 5
	if _, err := wire.DecodeClientRequest(b); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("an unknown condition: %v", err)
	}
	if wire.ClientRow != 1 || wire.FrameRenew != 10 {
		t.Error("numbers on the wire were changed")
	}
}
