package wire

// Renewal is the meta leader's answer to a lease that is renewed or granted: the
// frontier of the meta group.
type Renewal struct {
	Term, Index uint64
}

const renewalFormat = 1

// AppendRenewal appends a renewal.
func AppendRenewal(dst []byte, r Renewal) []byte {
	return AppendUvarint(AppendUvarint(append(dst, renewalFormat), r.Term), r.Index)
}

// DecodeRenewal reads what AppendRenewal wrote; what a later release adds behind
// it is skipped.
func DecodeRenewal(b []byte) (Renewal, error) {
	r := NewReader(b)
	r.format("format of a renewal", renewalFormat)
	v := Renewal{Term: r.Uvarint("term of a renewal"), Index: r.Uvarint("index of a renewal")}
	return v, r.Err()
}
