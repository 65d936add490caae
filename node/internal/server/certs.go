package server

import (
	"context"
	"net/http"

	"tidal/node/api"
)

// Certs has certificates refused and keeps how far a rotation is. Its errors are
// *api.Error.
type Certs interface {
	Revoked() []api.Revocation
	// Revoke returns once it is decided that the cluster refuses a certificate.
	Revoke(ctx context.Context, r api.Revocation) error
	Rotation() api.Rotation
	// Rotate returns once it is decided that a rotation takes a step.
	Rotate(ctx context.Context, r api.Rotation) error
}

// maxRevocation is the limit of the body of a revocation.
const maxRevocation = 4 << 10

func revokedRoute() *route {
	return newRoute("/v1/certs/revoked",
		verb{http.MethodGet, needReader, (*exchange).listRevoked},
		verb{http.MethodPost, needAdmin, (*exchange).revoke},
	)
}

func rotationRoute() *route {
	return newRoute("/v1/certs/rotation",
		verb{http.MethodGet, needReader, (*exchange).getRotation},
		verb{http.MethodPut, needAdmin, (*exchange).putRotation},
	)
}

// getRotation answers GET /v1/certs/rotation.
func (x *exchange) getRotation() error {
	if _, err := x.query(); err != nil {
		return err
	}
	return x.json(http.StatusOK, x.s.o.Certs.Rotation())
}

// putRotation answers PUT /v1/certs/rotation.
func (x *exchange) putRotation() error {
	if _, err := x.query(); err != nil {
		return err
	}
	body, err := x.body(maxRevocation, "the rotation")
	if err != nil {
		return err
	}
	var r api.Rotation
	if err = parseObject(body, &r, "the rotation", `"old", "new", "phase" and "by"`); err != nil {
		return err
	}
	if r.By == "" {
		r.By = x.who.Name
	}
	if err = r.Check(); err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	if err = x.s.o.Certs.Rotate(ctx, r); err != nil {
		return x.late(ctx, err)
	}
	return x.json(http.StatusOK, r)
}

// listRevoked answers GET /v1/certs/revoked.
func (x *exchange) listRevoked() error {
	if _, err := x.query(); err != nil {
		return err
	}
	return x.json(http.StatusOK, api.RevocationList{Revoked: x.s.o.Certs.Revoked()})
}

// revoke answers POST /v1/certs/revoked.
func (x *exchange) revoke() error {
	if _, err := x.query(); err != nil {
		return err
	}
	body, err := x.body(maxRevocation, "the revocation")
	if err != nil {
		return err
	}
	var r api.Revocation
	if err = parseObject(body, &r, "the revocation", `"serial", "reason" and "by"`); err != nil {
		return err
	}
	if r.By == "" {
		r.By = x.who.Name
	}
	if err = r.Check(); err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	if err = x.s.o.Certs.Revoke(ctx, r); err != nil {
		return x.late(ctx, err)
	}
	x.begin(http.StatusNoContent)
	return nil
}
