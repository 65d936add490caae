package peer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/peer"
	"tidal/node/internal/wire"
)

// TestFence: a node of which one member says that its disk is not the one that it
// was talks to nobody any more, whoever dials, and is told why.
func TestFence(t *testing.T) {
	for _, test := range []struct {
		name   string
		code   api.Code
		fenced bool
	}{
		{"the disk is not the one that it was", api.CodeWrongDisk, true},
		{"another refusal", api.CodeForbidden, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				older := &api.Error{Code: test.code, Message: "the disk is older", Hint: "wipe it"}
				var told []string
				var knows atomic.Bool
				var mu sync.Mutex
				a := f.start(t, "a", 1, func(o *peer.Options) {
					o.Admit = func(h wire.Hello) error {
						if h.Incarnation.Node == "b" && knows.Load() {
							return older
						}
						return nil
					}
					o.Refused = func(remote wire.Hello, why *api.Error) {
						mu.Lock()
						defer mu.Unlock()
						told = append(told, remote.Incarnation.Node+" "+why.Message)
					}
				})
				var fencedBy string
				b := f.start(t, "b", 1, func(o *peer.Options) {
					o.Fenced = func(by api.Incarnation, why *api.Error) {
						mu.Lock()
						defer mu.Unlock()
						fencedBy += by.Node + " " + why.Message
					}
				})
				c := f.start(t, "c", 1)
				defer a.stop()
				defer b.stop()
				defer c.stop()
				join(a, b, c)
				settle()
				if why := b.Refusal("a"); why != nil {
					t.Errorf("before anything is wrong: %v", why)
				}
				knows.Store(true)
				f.each("b:1", func(n *line) { cut(n) })
				f.each("a:1", func(n *line) { cut(n) })
				advance(10 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				if len(told) == 0 || told[0] != "b the disk is older" {
					t.Errorf("a has refused %q", told)
				}
				if why := b.Refusal("a"); why == nil || why.Message != older.Message || why.Hint != older.Hint {
					t.Errorf("b knows of the refusal: %v", why)
				}
				_, err := b.Call(t.Context(), "c", wire.MethodStatus, nil)
				if test.fenced != (err != nil) {
					t.Errorf("a call from b to c: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _, err = b.CallAddress(ctx, "http://c:1", wire.MethodStatus, nil)
				if test.fenced != errors.Is(err, peer.ErrUnreachable) || err != nil && !strings.Contains(err.Error(), "a.1.00000abc refuses this node: the disk is older") {
					t.Errorf("a call from b to the address of c: %v", err)
				}
				_, err = c.Call(t.Context(), "b", wire.MethodStatus, nil)
				if test.fenced != (err != nil) {
					t.Errorf("a call from c to b: %v", err)
				}
				if test.fenced != (fencedBy == "a the disk is older") {
					t.Errorf("b was told %q", fencedBy)
				}
			})
		})
	}
}

// cut ends a line at both ends, as a reset does.
func cut(n *line) {
	for _, end := range n.ends {
		_ = end.Close()
	}
}
