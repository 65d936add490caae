package wire

import (
	"fmt"
	"time"

	"tidal/node/api"
)

// Sighting is how far a disk had come when it was last heard of. A disk that comes
// back behind it went back in time, and has forgotten what it promised.
type Sighting struct {
	Disk        api.DiskID
	Incarnation api.Incarnation // its newest run
	Pass        uint64          // the highest number of a synced pass that it told
	At          time.Time       // by the clock of who heard it: for people
}

// AppendSighting appends the stored form of s.
func AppendSighting(dst []byte, s *Sighting) []byte {
	return appendSighting(append(dst, recordVersion), s)
}

// DecodeSighting reads the form of AppendSighting.
func DecodeSighting(b []byte) (Sighting, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Sighting{}, fmt.Errorf("sighting: %w", err)
	}
	s := readSighting(r)
	if err := r.Done(); err != nil {
		return Sighting{}, fmt.Errorf("sighting: %w", err)
	}
	return s, nil
}

func appendSighting(dst []byte, s *Sighting) []byte {
	dst = append(dst, s.Disk[:]...)
	dst = AppendIncarnation(dst, s.Incarnation)
	dst = AppendUvarint(dst, s.Pass)
	return AppendUvarint(dst, uint64(max(s.At.UnixMilli(), 0)))
}

func readSighting(r *Reader) Sighting {
	s := Sighting{Disk: r.Array16("disk"), Incarnation: r.Incarnation("incarnation"), Pass: r.Uvarint("pass")}
	if ms := r.Uvarint("time"); ms <= maxMillis {
		s.At = time.UnixMilli(int64(ms)).UTC()
	} else {
		r.Fail("time", fmt.Sprintf("%d ms is too late", ms))
	}
	return s
}
