package wire_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// form is a format of the wire that has no fuzz target of its own.
type form struct {
	name string
	good []byte // one that is well, or none
	// check reads b and, if that can be read, says what comes back otherwise when it
	// is written and read again.
	check func(t *testing.T, b []byte)
}

func formOf[T any](name string, good []byte, encode func(T) []byte, decode func([]byte) (T, error)) form {
	return form{name, good, func(t *testing.T, b []byte) {
		t.Helper()
		v, err := decode(bytes.Clone(b))
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, wire.ErrNewer) {
				t.Errorf("%s: it is neither malformed nor newer: %v", name, err)
			}
			return
		}
		once := encode(v)
		again, err := decode(bytes.Clone(once))
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Errorf("%s: %+v came back as %+v, %v", name, v, again, err)
			return
		}
		if twice := encode(again); !bytes.Equal(twice, once) {
			t.Errorf("%s: %x became %x", name, once, twice)
		}
	}}
}

// byValue and byPointer are encoders without a buffer.
func byValue[T any](appendTo func([]byte, T) []byte) func(T) []byte {
	return func(v T) []byte { return appendTo(nil, v) }
}

func byPointer[T any](appendTo func([]byte, *T) []byte) func(T) []byte {
	return func(v T) []byte { return appendTo(nil, &v) }
}

func forms() []form {
	hello := someHello()
	order := wire.Order{Action: api.NodeDrain, Order: api.NodeOrder{TTL: "30s", Epoch: 7, By: "ann"}, Principal: api.Principal{Name: "ann", Role: api.RoleAdmin}}
	report := api.NodeReport{Node: "a", Phase: "serving", Claim: &api.Claim{By: "ann", Epoch: 9, EndsIn: "29s"}, Certificates: &api.Certificates{Serial: "12ab", Roots: []api.Root{{Subject: "root"}}}}
	request := func(b []byte) (*api.Request, error) { return wire.DecodeRequest(b, now()) }
	return []form{
		formOf("hello", wire.AppendHello(nil, &hello), byPointer(wire.AppendHello), wire.DecodeHello),
		formOf("heartbeat", wire.AppendHeartbeat(nil, someHeartbeat()), byValue(wire.AppendHeartbeat), wire.DecodeHeartbeat),
		formOf("call", wire.AppendCall(nil, wire.Call{ID: 1, Method: wire.MethodForward, Timeout: time.Second, Payload: []byte("x")}), byValue(wire.AppendCall), wire.DecodeCall),
		formOf("reply", wire.AppendReply(nil, wire.Reply{ID: 1, Payload: []byte("x")}), byValue(wire.AppendReply), wire.DecodeReply),
		formOf("refusal", wire.AppendReply(nil, wire.Reply{ID: 1, Err: someError()}), byValue(wire.AppendReply), wire.DecodeReply),
		formOf("request", wire.AppendRequest(nil, someRequest(), now()), func(q *api.Request) []byte { return wire.AppendRequest(nil, q, now()) }, request),
		formOf("response", wire.AppendResponse(nil, someResponse()), byValue(wire.AppendResponse), wire.DecodeResponse),
		formOf("error", wire.AppendError(nil, someError()), byValue(wire.AppendError), wire.DecodeError),
		formOf("renewal", wire.AppendRenewal(nil, wire.Renewal{Term: 3, Index: 70_000}), byValue(wire.AppendRenewal), wire.DecodeRenewal),
		formOf("client's request", wire.AppendClientRequest(nil, someClientRequest()), byValue(wire.AppendClientRequest), wire.DecodeClientRequest),
		formOf("client's response", wire.AppendClientResponse(nil, &wire.ClientResponse{Response: *someResponse()}), byValue(wire.AppendClientResponse), wire.DecodeClientResponse),
		formOf("order", wire.AppendOrder(nil, &order), byPointer(wire.AppendOrder), wire.DecodeOrder),
		formOf("report", wire.AppendReport(nil, &report), byPointer(wire.AppendReport), wire.DecodeReport),
		formOf("sighting", nil, byPointer(wire.AppendSighting), wire.DecodeSighting),
		formOf("revocation", nil, byPointer(wire.AppendRevocation), wire.DecodeRevocation),
		formOf("rotation", nil, byPointer(wire.AppendRotation), wire.DecodeRotation),
		formOf("join request", nil, byPointer(wire.AppendJoinRequest), wire.DecodeJoinRequest),
		formOf("admission", nil, byPointer(wire.AppendAdmission), wire.DecodeAdmission),
		formOf("roster", nil, byPointer(wire.AppendRoster), wire.DecodeRoster),
		formOf("roll", nil, byPointer(wire.AppendRoll), wire.DecodeRoll),
		formOf("roll's node", nil, byPointer(wire.AppendRollNode), wire.DecodeRollNode),
		formOf("digest call", nil, byValue(wire.AppendDigestCall), wire.DecodeDigestCall),
		formOf("digest", nil, byValue(wire.AppendDigest), wire.DecodeDigest),
	}
}

// FuzzForms: what is read in any format is written so that it is read as the same,
// and written as the same bytes again.
func FuzzForms(f *testing.F) {
	all := forms()
	for i, one := range all {
		f.Add(byte(i), one.good)
		f.Add(byte(i), []byte{1, 1, 1, 1, 1, 1, 1, 1})
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		all[int(which)%len(all)].check(t, b)
	})
}
