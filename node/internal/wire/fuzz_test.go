package wire_test

import (
	"bytes"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// form is a format: b is read and written again.
type form func(b []byte) (again []byte, err error)

func formOf[T any](appendTo func([]byte, *T) []byte, decode func([]byte) (T, error)) form {
	return func(b []byte) ([]byte, error) {
		v, err := decode(b)
		if err != nil {
			return nil, err
		}
		return appendTo(nil, &v), nil
	}
}

// forms are the formats that have no fuzz target of their own.
func forms() []form {
	return []form{
		formOf(wire.AppendOrder, wire.DecodeOrder),
		formOf(wire.AppendReport, wire.DecodeReport),
		formOf(wire.AppendSighting, wire.DecodeSighting),
		formOf(wire.AppendRevocation, wire.DecodeRevocation),
		formOf(wire.AppendRotation, wire.DecodeRotation),
		formOf(wire.AppendJoinRequest, wire.DecodeJoinRequest),
		formOf(wire.AppendAdmission, wire.DecodeAdmission),
		formOf(wire.AppendRoster, wire.DecodeRoster),
		formOf(wire.AppendRoll, wire.DecodeRoll),
		formOf(wire.AppendRollNode, wire.DecodeRollNode),
		formOf(func(b []byte, c *wire.DigestCall) []byte { return wire.AppendDigestCall(b, *c) }, wire.DecodeDigestCall),
		formOf(func(b []byte, d *wire.Digest) []byte { return wire.AppendDigest(b, *d) }, wire.DecodeDigest),
	}
}

// FuzzForms: what is read in any format and written is read, and written, as the
// same.
func FuzzForms(f *testing.F) {
	o := wire.Order{Action: api.NodeDrain, Order: api.NodeOrder{TTL: "30s", Epoch: 7, By: "ann"}, Principal: api.Principal{Name: "ann", Role: api.RoleAdmin}}
	p := api.NodeReport{Node: "a", Phase: "serving", Claim: &api.Claim{By: "ann", Epoch: 9, EndsIn: "29s"}, Certificates: &api.Certificates{Serial: "12ab", Roots: []api.Root{{Subject: "root"}}}}
	f.Add(byte(0), wire.AppendOrder(nil, &o))
	f.Add(byte(1), wire.AppendReport(nil, &p))
	for i := range forms() {
		f.Add(byte(i), []byte{1, 1, 1, 1, 1, 1, 1, 1})
	}
	all := forms()
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		one := all[int(which)%len(all)]
		once, err := one(b)
		if err != nil {
			return
		}
		again, err := one(bytes.Clone(once))
		if err != nil || !bytes.Equal(again, once) {
			t.Errorf("form %d: %x became %x, %v", int(which)%len(all), once, again, err)
		}
	})
}
