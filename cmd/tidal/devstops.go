package main

import (
	"context"
	"slices"
	"time"
)

// awaitStops returns once no node of the cluster is on its way down: one that was
// told to stop still runs, but is none to count on. One that takes too long counts.
func (f *fleet) awaitStops(ctx context.Context) error {
	if len(f.runningPIDs()) == 0 {
		return nil
	}
	cl, err := target{clusterContext: f.context()}.connect()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, devStop)
	defer cancel()
	look := time.NewTicker(devLook)
	defer look.Stop()
	left, stops := slices.Clone(f.state.Nodes), map[string]bool{} // as each said last
	for {
		left = slices.DeleteFunc(left, func(n devNode) bool {
			if h, err := cl.Health(ctx, n.url()); err == nil { // at its very end it does not answer
				stops[n.ID] = h.Phase == "drain" || h.Phase == "stop"
			}
			return !f.runs(n) || !stops[n.ID]
		})
		if len(left) == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}
