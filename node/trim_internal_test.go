package node

import "testing"

func TestIdle(t *testing.T) {
	for _, tc := range []struct {
		name  string
		awake int
		free  uint64
		want  bool
	}{
		{"nothing happens, and much is free", 1, 64 << 20, true},
		{"the node belongs to no cluster", 0, 64 << 20, true},
		{"little is free", 1, 1 << 20, false},
		{"a table is in use", 2, 64 << 20, false},
	} {
		if got := idle(tc.awake, tc.free); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
