package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// FrameKind says what a frame holds, between nodes or on a client's stream. Numbers
// are on the wire: append only.
type FrameKind byte

// The kinds.
const (
	FrameHello     FrameKind = iota + 1 // Hello: first in each direction
	FrameVerdict                        // after the hellos, in each direction: empty, or the Error that refuses
	FramePing                           // empty; asks for a pong
	FramePong                           // empty
	FrameRaft                           // raft messages
	FrameHeartbeat                      // Heartbeat
	FrameCall                           // Call
	FrameReply                          // Reply
	FrameSnapshot                       // a part of a snapshot
	FrameRenew                          // empty: dial anew, since the accepting side has another certificate or stops
)

// MaxFrame is the most bytes that a frame's payload may have.
const MaxFrame = 16 << 20

// FrameHeader is how many bytes stand before a frame's payload: its length, 4
// bytes big-endian, and its kind.
const FrameHeader = 5

// readStep is how much is allocated for a frame before any of it has arrived.
const readStep = 64 << 10

// AppendFrame appends a whole frame.
func AppendFrame(dst []byte, kind FrameKind, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	dst = append(dst, byte(kind))
	return append(dst, payload...)
}

// FinishFrame fills in the first FrameHeader bytes of b, behind which the payload
// stands.
func FinishFrame(b []byte, kind FrameKind) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-FrameHeader))
	b[FrameHeader-1] = byte(kind)
	return b
}

// ReadFrame reads a whole frame whose payload has at most limit bytes. The
// payload is a buffer of its own, never reused. The error is io.EOF only if the
// stream ends before the frame begins.
func ReadFrame(r io.Reader, limit int) (FrameKind, []byte, error) {
	n, kind, err := readHeader(r)
	if err != nil {
		return 0, nil, err
	}
	if uint64(n) > uint64(limit) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, the limit is %d", ErrMalformed, n, limit)
	}
	payload, err := readPayload(r, int(n))
	return kind, payload, err
}

// readHeader reads the length and the kind of a frame, without allocating if there is
// a buffer to look into.
func readHeader(r io.Reader) (n uint32, kind FrameKind, err error) {
	br, buffered := r.(*bufio.Reader)
	if !buffered {
		var head [FrameHeader]byte
		_, err = io.ReadFull(r, head[:])
		return binary.BigEndian.Uint32(head[:]), FrameKind(head[FrameHeader-1]), err
	}
	head, err := br.Peek(FrameHeader)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, 0, err
	}
	n, kind = binary.BigEndian.Uint32(head), FrameKind(head[FrameHeader-1])
	_, err = br.Discard(FrameHeader)
	return n, kind, err
}

// readPayload reads n bytes, and allocates for a large n as its bytes arrive: a
// length alone costs its sender nothing.
func readPayload(r io.Reader, n int) ([]byte, error) {
	payload := make([]byte, min(n, readStep))
	for have := 0; ; {
		k, err := io.ReadFull(r, payload[have:])
		if have += k; err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("frame of %d bytes: %w", n, err)
		}
		if have == n {
			return payload, nil
		}
		longer := make([]byte, min(n, 2*have))
		copy(longer, payload)
		payload = longer
	}
}
