package wire

import "tidal/node/api"

const digestFormat = 1

// DigestKind is what a DigestCall asks for. The numbers are sent: append only.
type DigestKind byte

// The kinds.
const (
	DigestAsk   DigestKind = 1 // the hash of the node's replica at the next mark in the table's order
	DigestMark  DigestKind = 2 // that a node which owns the table puts a mark there
	DigestFence DigestKind = 3 // that a replica serves nothing any more: it differs from most others
)

// DigestCall asks a node about its replica of a table.
type DigestCall struct {
	Kind    DigestKind
	Table   api.TableID
	Replica uint64 // to be fenced: its raft id
	Idle    bool   // nobody waits for the hash
}

// AppendDigestCall appends c.
func AppendDigestCall(dst []byte, c DigestCall) []byte {
	dst = AppendUvarint(append(dst, digestFormat, byte(c.Kind)), uint64(c.Table))
	return AppendBool(AppendUvarint(dst, c.Replica), c.Idle)
}

// DecodeDigestCall reads what AppendDigestCall wrote.
func DecodeDigestCall(b []byte) (DigestCall, error) {
	r := NewReader(b)
	r.format("digest format", digestFormat)
	c := DigestCall{
		Kind: DigestKind(r.Byte("kind")), Table: api.TableID(r.Uvarint("table")),
		Replica: r.Uvarint("replica"), Idle: r.Bool("idle"),
	}
	if r.Err() == nil && (c.Kind < DigestAsk || c.Kind > DigestFence) {
		r.Fail("kind", "it is not known here")
	}
	return c, r.Done()
}

// Digest is the hash of a replica at a mark; of other calls, zero.
type Digest struct {
	Index uint64
	Hash  [32]byte
}

// AppendDigest appends d.
func AppendDigest(dst []byte, d Digest) []byte {
	return append(AppendUvarint(append(dst, digestFormat), d.Index), d.Hash[:]...)
}

// DecodeDigest reads what AppendDigest wrote.
func DecodeDigest(b []byte) (Digest, error) {
	r := NewReader(b)
	r.format("digest format", digestFormat)
	d := Digest{Index: r.Uvarint("index")}
	copy(d.Hash[:], r.take("hash", len(d.Hash)))
	return d, r.Done()
}
