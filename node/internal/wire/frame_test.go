package wire_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"tidal/node/internal/wire"
)

func TestFrames(t *testing.T) {
	var stream []byte
	payloads := [][]byte{nil, []byte("x"), bytes.Repeat([]byte("0123456789"), 500_000)}
	for i, p := range payloads {
		stream = wire.AppendFrame(stream, wire.FrameKind(i+1), p)
	}
	for name, r := range map[string]io.Reader{
		"whole":    bytes.NewReader(stream),
		"halves":   iotest.HalfReader(bytes.NewReader(stream)),
		"with eof": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		for i, p := range payloads {
			kind, got, err := wire.ReadFrame(r, wire.MaxFrame)
			if err != nil || kind != wire.FrameKind(i+1) || !bytes.Equal(got, p) {
				t.Errorf("%s: frame %d: kind %d, %d bytes, %v", name, i, kind, len(got), err)
			}
		}
		if _, _, err := wire.ReadFrame(r, wire.MaxFrame); err != io.EOF { //nolint:errorlint // must be bare
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

func TestFrameErrors(t *testing.T) {
	whole := wire.AppendFrame(nil, wire.FrameRaft, []byte("payload"))
	for cut := 1; cut < len(whole); cut++ {
		_, _, err := wire.ReadFrame(bytes.NewReader(whole[:cut]), wire.MaxFrame)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", cut, err)
		}
	}
	_, _, err := wire.ReadFrame(bytes.NewReader(whole), 6)
	if !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "a frame of 7 bytes, the limit is 6") {
		t.Errorf("too large: %v", err)
	}
	_, _, err = wire.ReadFrame(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff, 1}), wire.MaxFrame)
	if !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "4294967295 bytes, the limit is 16777216") {
		t.Errorf("4 GiB: %v", err)
	}
}

// TestFrameIsAllocatedAsItArrives promises 16 MiB and sends none of it.
func TestFrameIsAllocatedAsItArrives(t *testing.T) {
	head := []byte{0x01, 0, 0, 0, byte(wire.FrameRaft)}
	var err error
	n := allocated(func() { _, _, err = wire.ReadFrame(bytes.NewReader(head), wire.MaxFrame) })
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
	if n > 1<<20 {
		t.Errorf("%d bytes were allocated for a length", n)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(wire.AppendFrame(nil, wire.FrameHello, []byte("hello")))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, payload, err := wire.ReadFrame(bytes.NewReader(b), 1<<16)
		if err != nil {
			return
		}
		if again := wire.AppendFrame(nil, kind, payload); !bytes.HasPrefix(b, again) {
			t.Errorf("%x was read as %x", b, again)
		}
	})
}
