package wire_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

func TestHandOvers(t *testing.T) {
	for _, h := range []wire.HandOver{
		{Table: 7},
		{
			Table: 1 << 63, Keep: true, To: "b", TTL: 90 * time.Second, Owner: &api.Incarnation{Node: "a", Start: 3, Suffix: 4}, By: "ann@laptop",
			Principal: api.Principal{Name: "ann", Role: api.RoleAdmin},
		},
	} {
		b := wire.AppendHandOver(nil, &h)
		got, err := wire.DecodeHandOver(append(b, "later"...))
		if diff := cmp.Diff(h, got); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
		for n := range b {
			if _, err := wire.DecodeHandOver(b[:n]); err == nil {
				t.Errorf("a hand-over cut at %d of %d bytes was read", n, len(b))
			}
		}
	}
}
