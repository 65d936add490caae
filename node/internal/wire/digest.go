package wire

import "tidal/node/api"

const digestFormat = 1

// DigestCall asks a node about its replica of a table: for its hash at the next mark
// in the table's order, or, if the node owns the table, to put a mark there.
type DigestCall struct {
	Table api.TableID
	Mark  bool
}

// AppendDigestCall appends c.
func AppendDigestCall(dst []byte, c DigestCall) []byte {
	return AppendBool(AppendUvarint(append(dst, digestFormat), uint64(c.Table)), c.Mark)
}

// DecodeDigestCall reads what AppendDigestCall wrote.
func DecodeDigestCall(b []byte) (DigestCall, error) {
	r := NewReader(b)
	r.format("digest format", digestFormat)
	c := DigestCall{Table: api.TableID(r.Uvarint("table")), Mark: r.Bool("mark")}
	return c, r.Done()
}

// Digest is the hash of a replica at a mark; of a call for a mark, zero.
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
