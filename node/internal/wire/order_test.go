package wire_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

func second(n int64) time.Time { return time.Unix(1_800_000_000+n, 0).UTC() }

func TestOrdersAndReports(t *testing.T) {
	o := wire.Order{
		Action: api.NodeDrain, Order: api.NodeOrder{TTL: "30s", Epoch: 7, By: "ann", Roll: 3, Binary: "5a5a"},
		Principal: api.Principal{Name: "ann", Role: api.RoleAdmin},
	}
	b := wire.AppendOrder(nil, &o)
	got, err := wire.DecodeOrder(append(b, "later"...))
	if diff := cmp.Diff(o, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	for n := range b {
		if _, err := wire.DecodeOrder(b[:n]); err == nil {
			t.Errorf("an order cut at %d of %d bytes was read", n, len(b))
		}
	}
	for _, p := range []api.NodeReport{
		{Node: "a", Incarnation: api.Incarnation{Node: "a", Start: 3, Suffix: 4}, Phase: "serving"},
		{
			Node: "b", Incarnation: api.Incarnation{Node: "b", Start: 3, Suffix: 4}, Phase: "serving", Draining: true, Owned: 300,
			Claim: &api.Claim{By: "ann", Epoch: 9, EndsIn: "29s", Roll: 3},
			Certificates: &api.Certificates{
				Serial: "12ab", Identity: "spiffe://prod/node/b", Issuer: "34cd", NotBefore: second(1), NotAfter: second(2), Since: second(3),
				Due: true, Taken: 2, Failed: 300, Problem: "tls.crt: is not there", Roots: []api.Root{{Fingerprint: "56ef", Subject: "root", NotAfter: second(4)}},
				Issuers: []string{"34", "56"},
			},
		},
	} {
		b := wire.AppendReport(nil, &p)
		got, err := wire.DecodeReport(append(b, "later"...))
		if diff := cmp.Diff(p, got); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
		for n := range b {
			if _, err := wire.DecodeReport(b[:n]); err == nil {
				t.Errorf("a report cut at %d of %d bytes was read", n, len(b))
			}
		}
	}
}
