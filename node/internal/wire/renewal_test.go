package wire_test

import (
	"errors"
	"math"
	"testing"

	"tidal/node/internal/wire"
)

func TestRenewals(t *testing.T) {
	for _, want := range []wire.Renewal{{}, {Term: 3, Index: 70_000}, {Term: math.MaxUint64, Index: math.MaxUint64}} {
		b := wire.AppendRenewal(nil, want)
		if got, err := wire.DecodeRenewal(b); got != want || err != nil {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
		if got, err := wire.DecodeRenewal(append(b, "more"...)); got != want || err != nil {
			t.Errorf("of a later release, %+v came back as %+v, %v", want, got, err)
		}
		for cut := range b {
			if _, err := wire.DecodeRenewal(b[:cut]); !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("cut after %d of %d bytes: %v", cut, len(b), err)
			}
		}
		b[0]++
		if _, err := wire.DecodeRenewal(b); err == nil {
			t.Error("a renewal of a later format was read")
		}
	}
}
