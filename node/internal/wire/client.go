package wire

import (
	"fmt"

	"tidal/node/api"
)

// ClientProtocol is what a client asks for in the header Upgrade to have its
// connection become a stream of frames: calls to the node and replies to them.
const ClientProtocol = "tidal-client/1"

// The methods of calls on a client's stream. Numbers are on the wire: append only.
const (
	ClientRow Method = iota + 1 // ClientRequest, answered with ClientResponse
)

const (
	clientRequestFormat  = 1
	clientResponseFormat = 1
)

// ClientRequest is a row request as a client sends it. What the entering node adds is
// not in it: the id, the deadline, which is the call's, and who asks, which is the
// connection's. Of a batch the value is its lines, as api.AppendChange writes them.
type ClientRequest struct {
	api.Request

	Idem string // Idempotency-Key; "": none
}

func (q *ClientRequest) flags() (flags uint64) {
	if q.Idem != "" {
		flags |= requestKeyed
	}
	if q.Local {
		flags |= requestLocal
	}
	if len(q.IfMatch) > 0 {
		flags |= requestIfMatch
	}
	if q.IfNoneMatch {
		flags |= requestIfNoneMatch
	}
	if q.IfExists {
		flags |= requestIfExists
	}
	return flags
}

// AppendClientRequest appends q.
func AppendClientRequest(dst []byte, q *ClientRequest) []byte {
	dst = AppendUvarint(append(dst, clientRequestFormat), q.flags())
	dst = append(dst, byte(q.Op))
	dst = AppendString(dst, q.Table)
	dst = AppendString(dst, q.Key)
	if q.Idem != "" {
		dst = AppendString(dst, q.Idem)
		dst = appendPosition(dst, q.Born)
	}
	if len(q.IfMatch) > 0 {
		dst = appendTags(dst, q.IfMatch)
	}
	return AppendBytes(dst, q.Value)
}

// DecodeClientRequest reads what AppendClientRequest wrote; the value aliases b.
// Whether names and conditions make sense is not asked.
func DecodeClientRequest(b []byte) (*ClientRequest, error) {
	r := NewReader(b)
	r.format("request format", clientRequestFormat)
	flags := r.Uvarint("flags")
	if flags&^requestFlags != 0 {
		r.Fail("flags", fmt.Sprintf("unknown bits in %#x", flags))
	}
	q := &ClientRequest{Request: api.Request{
		Op:          api.Op(r.Byte("operation")),
		Local:       flags&requestLocal != 0,
		IfNoneMatch: flags&requestIfNoneMatch != 0,
		IfExists:    flags&requestIfExists != 0,
	}}
	q.Table = r.String("table", api.MaxTable)
	q.Key = r.String("key", api.MaxKey)
	if flags&requestKeyed != 0 {
		if q.Idem = r.String("idempotency key", api.MaxIdem); q.Idem == "" {
			r.Fail("idempotency key", "it is empty")
		}
		q.Born = r.position("position")
	}
	if flags&requestIfMatch != 0 {
		q.IfMatch = r.tags("if-match")
	}
	most := api.MaxValue
	if q.Op == api.OpBatch {
		most = api.MaxBatch
	}
	q.Value = r.Bytes("value", most)
	if err := r.Done(); err != nil {
		return nil, err
	}
	return q, nil
}

// ClientResponse is the answer to a ClientRequest that was served.
type ClientResponse struct {
	api.Response

	// Position is one of the table that was committed before the answer; zero: none
	// is known.
	Position api.Position
}

// AppendClientResponse appends p.
func AppendClientResponse(dst []byte, p *ClientResponse) []byte {
	return AppendResponse(appendPosition(append(dst, clientResponseFormat), p.Position), &p.Response)
}

// DecodeClientResponse reads what AppendClientResponse wrote; the value aliases b.
func DecodeClientResponse(b []byte) (*ClientResponse, error) {
	r := NewReader(b)
	r.format("response format", clientResponseFormat)
	p := &ClientResponse{Position: r.position("position")}
	if r.Err() != nil {
		return nil, r.Err()
	}
	resp, err := DecodeResponse(r.Rest())
	if err != nil {
		return nil, err
	}
	p.Response = *resp
	return p, nil
}
