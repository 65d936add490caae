package wire

import (
	"fmt"

	"tidal/node/api"
)

// Founding asks a member to propose a cluster without some of the listed members.
type Founding struct {
	List    string   // the configured members, the same on all that agree
	Members []string // those that are there
}

// AppendFounding appends f.
func AppendFounding(dst []byte, f *Founding) []byte {
	dst = AppendString(append(dst, recordVersion), f.List)
	dst = AppendUvarint(dst, uint64(len(f.Members)))
	for _, m := range f.Members {
		dst = AppendString(dst, m)
	}
	return dst
}

// DecodeFounding reads what AppendFounding wrote.
func DecodeFounding(b []byte) (Founding, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Founding{}, fmt.Errorf("founding: %w", err)
	}
	f := Founding{List: r.String("member list", 1<<16)}
	f.Members = make([]string, r.Count("members", 1))
	for i := range f.Members {
		f.Members[i] = r.String("member", api.MaxNode)
	}
	if err := r.Done(); err != nil {
		return Founding{}, fmt.Errorf("founding: %w", err)
	}
	return f, nil
}
