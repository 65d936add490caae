package meta

import (
	"tidal/node/api"
	"tidal/node/internal/wire"
)

func serial(r wire.Revocation) string { return r.Serial }

func (v *View) putRevocation(r wire.Revocation) Change {
	v.Revoked = put(v.Revoked, r, serial)
	return Change{Key: []byte(prefixRevoked + r.Serial), Value: wire.AppendRevocation(nil, &r)}
}

// revoke has the cluster refuse a certificate, for ever: who could have it back
// can have another one made as well.
func (d *draft) revoke(c *wire.MetaCommand) wire.MetaAnswer {
	r := api.Revocation(c.Revocation)
	if r.Check() != nil {
		return refuse("serial %q cannot be revoked", r.Serial)
	}
	if _, found := find(d.Revoked, r.Serial, serial); found {
		return wire.MetaAnswer{}
	}
	if len(d.Revoked) >= api.MaxRevoked {
		return conflict("%d certificates are revoked, and there is room for no more: rotate the authority", len(d.Revoked))
	}
	d.record(d.putRevocation(c.Revocation))
	return wire.MetaAnswer{Changed: true}
}

// rotate takes a step of a rotation of the authority. A step that was taken changes
// nothing, so that it may be sent again; one out of order is refused, and so is
// another rotation while one is under way.
func (d *draft) rotate(c *wire.MetaCommand) wire.MetaAnswer {
	want, have := api.Rotation(c.Rotation), api.Rotation(d.Rotation)
	if err := want.Check(); err != nil {
		return refuse("%s", api.AsError(err).Message)
	}
	same := want.Old == have.Old && want.New == have.New
	switch {
	case same && want.Phase == have.Phase:
		return wire.MetaAnswer{}
	case !have.Active() && want.Phase == api.RotateTrust && (!same || have.Phase == api.RotateUndone):
	case same && api.Follows(have.Phase, want.Phase):
	case have.Active() && !same:
		return conflict("a rotation from root %.16s to root %.16s is in phase %s: it is ended or undone first", have.Old, have.New, have.Phase)
	default:
		return conflict("phase %s does not follow phase %q of the rotation to root %.16s", want.Phase, have.Phase, want.New)
	}
	d.Rotation = c.Rotation
	d.record(Change{Key: []byte(keyRotation), Value: wire.AppendRotation(nil, &c.Rotation)})
	return wire.MetaAnswer{Changed: true}
}
