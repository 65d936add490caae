package server

import (
	"context"
	"net/http"

	"tidal/node/api"
)

// Level knows the feature level of the cluster, and raises it. Its errors are
// *api.Error.
type Level interface {
	Level(ctx context.Context) (api.ClusterLevel, error)
	// RaiseLevel raises it for ever, 0 being to the highest that every member speaks.
	RaiseLevel(ctx context.Context, level uint64) (api.ClusterLevel, error)
}

func levelRoute() *route {
	return newRoute("/v1/cluster/level",
		verb{http.MethodGet, needReader, (*exchange).getLevel},
		verb{http.MethodPut, needAdmin, (*exchange).raiseLevel},
	)
}

// getLevel answers GET /v1/cluster/level.
func (x *exchange) getLevel() error {
	if _, err := x.query(); err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	l, err := x.s.o.Level.Level(ctx)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, l)
}

// raiseLevel answers PUT /v1/cluster/level.
func (x *exchange) raiseLevel() error {
	if _, err := x.query(); err != nil {
		return err
	}
	body, err := x.body(maxOrder, "the change of the level")
	if err != nil {
		return err
	}
	var c api.LevelChange
	if err = parseObject(body, &c, "the change of the level", `"level"`); err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	l, err := x.s.o.Level.RaiseLevel(ctx, c.Level)
	if err != nil {
		return x.late(ctx, err)
	}
	return x.json(http.StatusOK, l)
}
