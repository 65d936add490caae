package cluster_test

import (
	"testing"
	"time"

	"tidal/node/api"
)

// TestAwayWhileATableWasMade: a node that was cut off from the others does not say that
// there is no table, neither then nor when it is back, before it knows.
func TestAwayWhileATableWasMade(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		away := b.others(b.metaLeader())[0]
		other := b.at(b.metaLeader())
		b.isolate(away)
		b.within(20*time.Second, "its lease is over", func() bool { return !other.holds(away) })
		_, _, err := other.cluster.CreateTable(b.Context(), "t", api.TableSettings{})
		b.check(err)
		_, err = b.at(away).cluster.TableID(b.Context(), "t")
		if api.CodeOf(err) != api.CodeNotReady {
			t.Errorf("while it is cut off: %v", err)
		}
		b.block(nil)
		if _, known := b.at(away).cluster.Find("t"); known {
			t.Fatal("it has heard of the table: the test proves nothing")
		}
		_, err = b.at(away).cluster.TableID(b.Context(), "t")
		b.check(err)
		if _, known := b.at(away).cluster.Find("t"); !known {
			t.Error("it cannot route to it")
		}
		if _, err = b.at(away).cluster.TableID(b.Context(), "none"); api.CodeOf(err) != api.CodeTableNotFound {
			t.Errorf("of no table: %v", err)
		}
	})
}
