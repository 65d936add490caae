package table

import (
	"encoding/binary"
	"runtime"
	"testing"

	"tidal/node/api"
)

// TestForgottenIDsGiveTheirRoomBack: a table that was busy and remembers little now takes
// little, also if it never forgets all. What is left is found.
func TestForgottenIDsGiveTheirRoomBack(t *testing.T) {
	const many, few, most = 1 << 18, 1000, 2 << 20
	id := func(n uint64) (id api.RequestID) {
		binary.BigEndian.PutUint64(id[:], n)
		return id
	}
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	var i ids
	i.clear()
	before := heap()
	for n := range uint64(many) {
		i.add(id(n), n)
	}
	if took := heap() - before; took < most {
		t.Fatalf("%d ids take %d bytes: the test proves nothing", many, took)
	}
	for n := range uint64(many - few) {
		i.remove(id(n))
	}
	if took := heap() - before; took > most {
		t.Errorf("%d ids take %d bytes after %d were forgotten", few, took, many-few)
	}
	for n := range uint64(many) {
		if index, known := i.find(id(n)); known != (n >= many-few) || known && index != n {
			t.Fatalf("id %d is found as %d, %t", n, index, known)
		}
	}
}
