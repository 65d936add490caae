package cluster

import (
	"context"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// Revoke has the cluster refuse a certificate. It returns once that is decided; the
// nodes do so as they learn of it.
func (c *Cluster) Revoke(ctx context.Context, r api.Revocation) error {
	_, err := c.propose(ctx, &wire.MetaCommand{Kind: wire.MetaRevoke, ID: newID(), Revocation: wire.Revocation(r)})
	return err
}

// Revoked lists the certificates that the cluster refuses, as this node knows it.
func (c *Cluster) Revoked() []api.Revocation {
	v := c.View()
	out := make([]api.Revocation, 0, len(v.Revoked))
	for _, r := range v.Revoked {
		out = append(out, api.Revocation(r))
	}
	return out
}

// Rotate takes a step of a rotation of the authority. It returns once that is
// decided.
func (c *Cluster) Rotate(ctx context.Context, r api.Rotation) error {
	_, err := c.propose(ctx, &wire.MetaCommand{Kind: wire.MetaRotate, ID: newID(), Rotation: wire.Rotation(r)})
	return err
}

// Rotation returns the rotation under way, or the last, as this node knows it.
func (c *Cluster) Rotation() api.Rotation { return api.Rotation(c.View().Rotation) }
