package cluster_test

import (
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// routed returns where a node sends a table's requests.
func (b *bed) routed(at, table string) string {
	r, _ := b.at(at).cluster.Find(table)
	return r.Owner
}

// TestSilentOwnerIsReplaced: a node that says nothing for three heartbeats has its
// tables taken, and the meta group too. Calls that wait for it do not.
func TestSilentOwnerIsReplaced(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(3)
		gone := b.metaLeader()
		other := b.others(gone)[0]
		b.isolate(gone)
		took := b.within(time.Second, "another meta leader", func() bool {
			s := b.at(other).cluster.Status()
			return s.MetaLeader != gone && s.MetaLeader != ""
		})
		for _, name := range []string{"t0", "t1", "t2"} {
			took += b.within(time.Second, "another owner of "+name, func() bool { o := b.routed(other, name); return o != gone && o != "" })
		}
		if took > 800*time.Millisecond { // mostly 300, and twice that when two stand at once
			t.Errorf("it took %v", took)
		}
		began := time.Now()
		_, err := b.at(other).cluster.Ask(b.Context(), gone, wire.MethodStatus, nil)
		if api.CodeOf(err) != api.CodeOwnerUnreachable || time.Since(began) > 0 {
			t.Errorf("a call to a dead node: %v after %v", err, time.Since(began))
		}
	})
}

func (b *bed) others(than string) (out []string) {
	for _, id := range b.ids {
		if id != than {
			out = append(out, id)
		}
	}
	return out
}
