package wire_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

func someHello() wire.Hello {
	return wire.Hello{
		Min: 1, Max: 3,
		Kind:        wire.ConnCall,
		ClusterID:   api.ClusterID{1, 2, 3},
		Cluster:     "prod",
		Disk:        api.DiskID{9, 8, 7},
		Incarnation: api.Incarnation{Node: "a", Start: 17, Suffix: 0xffffffff},
		Pass:        1 << 50,
		Version:     "0.1.0",
	}
}

func someHeartbeat() *wire.Heartbeat {
	return &wire.Heartbeat{
		Seq: 5, Pass: 99, Full: true,
		Owned:   []wire.Owned{{Table: 2, Term: 7, Replica: 12}, {Table: 1 << 60, Term: 1, Replica: 1 << 40}},
		Gone:    []api.TableID{3, 4},
		Hears:   []string{"b", "c"},
		Age:     1300 * time.Millisecond,
		Crowded: true, SpentMade: true, SpentKeyed: true, Fenced: []api.TableID{2, 1 << 50},
	}
}

// now is when requests are encoded and decoded.
func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func someRequest() *api.Request {
	return &api.Request{
		ID:        api.RequestID{1, 2, 3},
		Keyed:     true,
		Op:        api.OpPut,
		Table:     "orders",
		Key:       "k/1",
		Value:     []byte("value"),
		Local:     true,
		Deadline:  now().Add(1500 * time.Millisecond),
		Born:      api.Position{Table: 2, Index: 77},
		Hops:      1,
		Principal: api.Principal{Name: "app", Role: api.RoleWriter},

		IfMatch:     []api.Version{{Table: 2, Index: 70}, {Table: 1, Index: 1 << 40}},
		IfExists:    true,
		IfNoneMatch: true,

		Changes: someChanges(),
		Range:   api.Range{From: "k/1\x00", To: "k/2", Limit: 7},
	}
}

func someChanges() []api.Change {
	return []api.Change{{Key: "k/1", Value: []byte("v")}, {Key: "k/2", Delete: true}, {Key: "k/3", Value: []byte("w")}}
}

func someResponse() *api.Response {
	return &api.Response{
		Found: true, Version: api.Version{Table: 2, Index: 78}, Value: []byte("v"), Size: 1, Lag: 3, Owner: "b", Hops: 1,
		Rows: []api.Row{{Key: "k", Value: []byte("v"), Version: api.Version{Table: 2, Index: 300}}, {Key: "l", Version: api.Version{Table: 2, Index: 1}}},
		More: true,
	}
}

func someError() *api.Error {
	return &api.Error{Code: api.CodeStaleOwner, Message: "not mine", Hint: "ask b", RetryAfter: 2 * time.Second, Owner: "b", At: api.Position{Table: 2, Index: 79}}
}

// TestAllFieldsTravel fails when a field of a format is added and its codec
// forgets it: every field of the samples is set, and must come back.
func TestAllFieldsTravel(t *testing.T) {
	hello := someHello()
	samples := map[string]struct {
		value  any
		encode func() []byte
		decode func([]byte) (any, error)
	}{
		"hello": {
			hello,
			func() []byte { return wire.AppendHello(nil, &hello) },
			func(b []byte) (any, error) { return wire.DecodeHello(b) },
		},
		"heartbeat": {
			*someHeartbeat(),
			func() []byte { return wire.AppendHeartbeat(nil, someHeartbeat()) },
			func(b []byte) (any, error) { h, err := wire.DecodeHeartbeat(b); return value(h), err },
		},
		"request": {
			*someRequest(),
			func() []byte { return wire.AppendRequest(nil, someRequest(), now()) },
			func(b []byte) (any, error) { q, err := wire.DecodeRequest(b, now()); return value(q), err },
		},
		"response": {
			*someResponse(),
			func() []byte { return wire.AppendResponse(nil, someResponse()) },
			func(b []byte) (any, error) { p, err := wire.DecodeResponse(b); return value(p), err },
		},
		"error": {
			*someError(),
			func() []byte { return wire.AppendError(nil, someError()) },
			func(b []byte) (any, error) { e, err := wire.DecodeError(b); return value(e), err },
		},
		"digest call": {
			wire.DigestCall{Kind: wire.DigestFence, Table: 300, Replica: 70000, Idle: true},
			func() []byte {
				return wire.AppendDigestCall(nil, wire.DigestCall{Kind: wire.DigestFence, Table: 300, Replica: 70000, Idle: true})
			},
			func(b []byte) (any, error) { return wire.DecodeDigestCall(b) },
		},
		"digest": {
			wire.Digest{Index: 300, Hash: [32]byte{0: 1, 31: 2}},
			func() []byte { return wire.AppendDigest(nil, wire.Digest{Index: 300, Hash: [32]byte{0: 1, 31: 2}}) },
			func(b []byte) (any, error) { return wire.DecodeDigest(b) },
		},
		"call": {
			wire.Call{ID: 300, Method: wire.MethodAwait, Timeout: 2 * time.Second, Payload: []byte("p")},
			func() []byte {
				return wire.AppendCall(nil, wire.Call{ID: 300, Method: wire.MethodAwait, Timeout: 2 * time.Second, Payload: []byte("p")})
			},
			func(b []byte) (any, error) { return wire.DecodeCall(b) },
		},
	}
	for name, s := range samples {
		t.Run(name, func(t *testing.T) {
			v := reflect.ValueOf(s.value)
			for i := range v.NumField() {
				if v.Field(i).IsZero() {
					t.Errorf("the sample does not set %s", v.Type().Field(i).Name)
				}
			}
			b := s.encode()
			got, err := s.decode(b)
			if err != nil || !reflect.DeepEqual(got, s.value) {
				t.Errorf("%+v came back as %+v, %v", s.value, got, err)
			}
			for cut := range b {
				if name == "call" && cut == len(b)-1 {
					continue // its payload may have any length
				}
				if _, err := s.decode(b[:cut]); !errors.Is(err, wire.ErrMalformed) {
					t.Errorf("cut after %d of %d bytes: %v", cut, len(b), err)
				}
			}
			if b[0] != 1 {
				return
			}
			b[0] = 2
			if _, err := s.decode(b); err == nil || !strings.Contains(err.Error(), "format: 2, this release reads 1") {
				t.Errorf("of a later format: %v", err)
			}
		})
	}
}

// value returns what p points to, or nil.
func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func TestReplies(t *testing.T) {
	for _, want := range []wire.Reply{
		{ID: 1, Payload: []byte("answer")},
		{ID: 2, Payload: []byte{}},
		{ID: 1 << 40, Err: someError()},
	} {
		got, err := wire.DecodeReply(wire.AppendReply(nil, want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
	}
	for _, b := range [][]byte{nil, {1}, {1, 2}, {1, 1}, {1, 1, 1, 5}} {
		if _, err := wire.DecodeReply(b); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%x: %v", b, err)
		}
	}
}

// TestLaterReleasesAreRead adds fields at the end, as later releases may to
// these two and to no other.
func TestLaterReleasesAreRead(t *testing.T) {
	h := someHello()
	got, err := wire.DecodeHello(append(wire.AppendHello(nil, &h), "more"...))
	if err != nil || got != h {
		t.Errorf("hello: %+v, %v", got, err)
	}
	hb, err := wire.DecodeHeartbeat(append(wire.AppendHeartbeat(nil, someHeartbeat()), "more"...))
	if err != nil || !reflect.DeepEqual(hb, someHeartbeat()) {
		t.Errorf("heartbeat: %+v, %v", hb, err)
	}
	if _, err := wire.DecodeRequest(append(wire.AppendRequest(nil, someRequest(), now()), 0), now()); err == nil {
		t.Error("a request with something unknown in it was accepted")
	}
	b := wire.AppendRequest(nil, someRequest(), now())
	b[1] |= 1 << 5
	if _, err := wire.DecodeRequest(b, now()); err == nil || !strings.Contains(err.Error(), "unknown bits in 0x3f") {
		t.Errorf("a request with an unknown condition: %v", err)
	}
}

func TestHelloNamesANode(t *testing.T) {
	h := someHello()
	for _, id := range []string{"", "A", "a/b", strings.Repeat("a", 33)} {
		h.Incarnation.Node = id
		if _, err := wire.DecodeHello(wire.AppendHello(nil, &h)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("node %q: %v", id, err)
		}
	}
}

func TestCommon(t *testing.T) {
	tests := []struct{ min1, max1, min2, max2, want uint64 }{
		{1, 1, 1, 1, 1},
		{1, 2, 2, 3, 2},
		{2, 5, 1, 3, 3},
		{1, 5, 2, 4, 4},
		{1, 1, 2, 2, 0},
		{3, 4, 1, 2, 0},
	}
	for _, test := range tests {
		a, b := wire.Hello{Min: test.min1, Max: test.max1, Version: "1.0"}, wire.Hello{Min: test.min2, Max: test.max2, Version: "2.0"}
		got, err := wire.Common(&a, &b)
		if got != test.want || (err == nil) != (test.want != 0) {
			t.Errorf("%+v: %d, %v", test, got, err)
		}
	}
	a := wire.Hello{Min: 1, Max: 1, Version: "1.0", Incarnation: api.Incarnation{Node: "a"}}
	b := wire.Hello{Min: 2, Max: 3, Version: "2.0", Incarnation: api.Incarnation{Node: "b"}}
	_, err := wire.Common(&a, &b)
	want := "the releases are too far apart: node a runs 1.0 and speaks level 1, node b runs 2.0 and speaks levels 2 to 3 (forbidden): " +
		"run a release in between on all nodes and `tidal cluster finalize`, then go on to the newer one"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestDeadlines shows that a deadline crosses between clocks that differ, that
// one that is over stays a deadline, and that none stays none.
func TestDeadlines(t *testing.T) {
	there := now().Add(-72 * time.Hour)
	for _, test := range []struct{ left, want time.Duration }{
		{1500 * time.Millisecond, 1500 * time.Millisecond},
		{time.Microsecond, time.Millisecond},
		{1001 * time.Microsecond, 2 * time.Millisecond},
		{0, time.Millisecond},
		{-time.Hour, time.Millisecond},
	} {
		q := &api.Request{Op: api.OpGet, Table: "t", Key: "k", Deadline: now().Add(test.left)}
		got, err := wire.DecodeRequest(wire.AppendRequest(nil, q, now()), there)
		if err != nil || got.Deadline.Sub(there) != test.want {
			t.Errorf("%s left arrived as %s, %v", test.left, got.Deadline.Sub(there), err)
		}
	}
	got, err := wire.DecodeRequest(wire.AppendRequest(nil, &api.Request{Op: api.OpGet}, now()), there)
	if err != nil || !got.Deadline.IsZero() {
		t.Errorf("no deadline arrived as %v, %v", got, err)
	}
	for _, test := range []struct{ left, want time.Duration }{{-time.Second, time.Millisecond}, {1, time.Millisecond}, {0, 0}} {
		got, err := wire.DecodeCall(wire.AppendCall(nil, wire.Call{Timeout: test.left}))
		if err != nil || got.Timeout != test.want {
			t.Errorf("timeout %s arrived as %s, %v", test.left, got.Timeout, err)
		}
	}
	if _, err := wire.DecodeCall(append([]byte{1, 1}, wire.AppendUvarint(nil, 1<<63)...)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a timeout of 292 million years: %v", err)
	}
}

// TestLongErrorsAreCut shows that no error is too long to be told.
func TestLongErrorsAreCut(t *testing.T) {
	e := &api.Error{Code: "x", Message: strings.Repeat("é", 5000), Hint: strings.Repeat("h", 5000)}
	got, err := wire.DecodeError(wire.AppendError(nil, e))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Message) > 4096 || len(got.Message) < 4090 || !utf8.ValidString(got.Message) || len(got.Hint) != 4096 {
		t.Errorf("message of %d bytes, hint of %d", len(got.Message), len(got.Hint))
	}
	if n := len(wire.AppendError(nil, e)); n > wire.MaxVerdict {
		t.Errorf("an error has %d bytes, a verdict may have %d", n, wire.MaxVerdict)
	}
}

func TestNumbersAreFixed(t *testing.T) {
	for got, want := range map[int]int{
		int(wire.FrameHello): 1, int(wire.FrameVerdict): 2, int(wire.FramePing): 3, int(wire.FramePong): 4,
		int(wire.FrameRaft): 5, int(wire.FrameHeartbeat): 6, int(wire.FrameCall): 7, int(wire.FrameReply): 8,
	} {
		if got != want {
			t.Errorf("a kind of frame has number %d, want %d", got, want)
		}
	}
	methods := []wire.Method{
		wire.MethodForward, wire.MethodPropose, wire.MethodRenew, wire.MethodFormProbe, wire.MethodFormAccept,
		wire.MethodProve, wire.MethodAwait, wire.MethodStatus, wire.MethodWithdraw,
		wire.MethodJoin, wire.MethodRoster, wire.MethodReleased, wire.MethodNode,
		wire.MethodPositions, wire.MethodRelay, wire.MethodMetaRead,
	}
	for i, m := range methods {
		if int(m) != i+1 {
			t.Errorf("method %d has number %d", i+1, m)
		}
	}
	if wire.ConnRaft != 1 || wire.ConnCall != 2 {
		t.Error("kinds of connections were renumbered")
	}
}
