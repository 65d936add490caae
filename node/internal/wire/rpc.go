package wire

import (
	"fmt"
	"time"

	"tidal/node/api"
)

// Method is what a call between nodes asks for. Numbers are on the wire: append
// only.
type Method byte

// The methods.
const (
	MethodForward    Method = iota + 1 // a row request, to the table's owner
	MethodPropose                      // a meta command, to the meta group's leader
	MethodRenew                        // keep a lease alive
	MethodFormProbe                    // before a cluster forms: who are you
	MethodFormAccept                   // accept the founding list
	MethodProve                        // dial an address and say who answers
	MethodAwait                        // answer when you can route to a table
	MethodStatus                       // the state of this node
	MethodWithdraw                     // end the caller's lease, if a quorum stays
	MethodJoin                         // an empty disk asks to be admitted
	MethodRoster                       // who are the members now
	MethodReleased                     // answer when you route no table to the caller
	MethodNode                         // an operator's order
	MethodPositions                    // how far all replicas are
	MethodRelay                        // a row request, to a node that reaches the table's owner
	MethodMetaRead                     // how far the meta group is, as its leader knows for certain
	MethodDigest                       // the hash of a replica at the next mark, or a mark
	MethodFound                        // propose a cluster without some of the listed members
	MethodHandOver                     // give a table to another node, or keep one that is given
)

// Call is one call's frame.
type Call struct {
	ID      uint64 // of the call, within its connection
	Method  Method
	Timeout time.Duration // until the answer is no longer wanted; 0: no limit
	Payload []byte
}

// AppendCall appends c. The timeout travels in milliseconds, rounded up: a time
// left would mean nothing on another node's clock.
func AppendCall(dst []byte, c Call) []byte {
	dst = AppendUvarint(dst, c.ID)
	dst = append(dst, byte(c.Method))
	dst = AppendUvarint(dst, millis(c.Timeout))
	return append(dst, c.Payload...)
}

// DecodeCall reads what AppendCall wrote; the payload aliases b.
func DecodeCall(b []byte) (Call, error) {
	r := NewReader(b)
	c := Call{
		ID:      r.Uvarint("call id"),
		Method:  Method(r.Byte("method")),
		Timeout: r.millis("timeout"),
	}
	c.Payload = r.Rest()
	return c, r.Err()
}

// Reply is the answer to a call: a payload or an error.
type Reply struct {
	ID      uint64 // of the call
	Payload []byte
	Err     *api.Error // nil if the call went well
}

const (
	replyOK     = 0
	replyFailed = 1
)

// AppendReply appends a.
func AppendReply(dst []byte, a Reply) []byte {
	dst = AppendUvarint(dst, a.ID)
	if a.Err != nil {
		return AppendError(append(dst, replyFailed), a.Err)
	}
	return append(append(dst, replyOK), a.Payload...)
}

// DecodeReply reads what AppendReply wrote; the payload aliases b.
func DecodeReply(b []byte) (Reply, error) {
	r := NewReader(b)
	a := Reply{ID: r.Uvarint("call id")}
	switch how := r.Byte("result"); how {
	case replyOK:
		a.Payload = r.Rest()
	case replyFailed:
		if r.Err() != nil {
			break
		}
		var err error
		if a.Err, err = DecodeError(r.Rest()); err != nil {
			return Reply{}, err
		}
	default:
		r.Fail("result", fmt.Sprintf("unknown: %d", how))
	}
	return a, r.Err()
}

// maxMillis keeps a duration from overflowing when it is read; it is 292 years.
const maxMillis = uint64(1<<63-1) / uint64(time.Millisecond)

// millis returns d in milliseconds, rounded up, 0 only for 0: what is over has a
// millisecond left, so that it does not turn into no limit.
func millis(d time.Duration) uint64 {
	switch {
	case d == 0:
		return 0
	case d < time.Millisecond:
		return 1
	}
	return uint64((d-1)/time.Millisecond) + 1
}

func (r *Reader) millis(field string) time.Duration {
	n := r.Uvarint(field)
	if n > maxMillis {
		r.Fail(field, fmt.Sprintf("%d ms is too long", n))
		return 0
	}
	return time.Duration(n) * time.Millisecond
}
