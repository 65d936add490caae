package cluster_test

import (
	"strings"
	"testing"

	"tidal/node/api"
)

// TestUnreadable: what the replicas could not read again is refused before it is in
// their log, at the leader and where it is not. There it would end them all, at each start.
func TestUnreadable(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		long := strings.Repeat("x", 5000)
		for _, id := range b.ids {
			c := b.at(id).cluster
			for what, do := range map[string]func() error{
				"a revocation": func() error { return c.Revoke(b.Context(), api.Revocation{Serial: "12ab", Reason: long}) },
				"a rotation":   func() error { return c.Rotate(b.Context(), api.Rotation{Old: "1a", New: long, Phase: api.RotateSoak}) },
				"a roll": func() error {
					_, err := c.ChangeRoll(b.Context(), api.RollStart, 0, api.RollChange{By: "ann", Node: strings.Repeat("n", 33)})
					return err
				},
			} {
				if err := do(); api.CodeOf(err) != api.CodeBadRequest {
					t.Errorf("%s at node %s, the leader is %s: %v", what, id, b.metaLeader(), err)
				}
			}
		}
		b.create(1) // they all go on
	})
}
