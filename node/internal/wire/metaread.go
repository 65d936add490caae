package wire

import "time"

// MetaRead is the meta leader's answer to who wants to know what is agreed on now.
type MetaRead struct {
	Index uint64 // which holds all of it
	// Epoch is that of the roll that runs, 0 if none does, and Silent for how long the
	// leader has not heard its holder.
	Epoch  uint64
	Silent time.Duration // in milliseconds on the wire
}

// AppendMetaRead appends the sent form of m.
func AppendMetaRead(dst []byte, m MetaRead) []byte {
	return AppendUvarint(AppendUvarint(AppendUvarint(dst, m.Index), m.Epoch), uint64(max(m.Silent, 0).Milliseconds()))
}

// DecodeMetaRead reads the form of AppendMetaRead.
func DecodeMetaRead(b []byte) (MetaRead, error) {
	r := NewReader(b)
	m := MetaRead{Index: r.Uvarint("position"), Epoch: r.Uvarint("epoch"), Silent: r.millis("silence")}
	return m, r.Done()
}
