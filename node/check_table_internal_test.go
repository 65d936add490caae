package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// TestJudge: each letter is what a replica answered at the mark; a small one at an
// earlier mark, - is no answer.
func TestJudge(t *testing.T) {
	for answers, want := range map[string]string{
		"AAA": "same same same", "AAB": "same same differs", "BAA": "differs same same", "ABC": "differs differs differs",
		"AB": "differs differs", "A": "same", "A-": "same unchecked", "AA-": "same same unchecked", "AB-": "differs differs unchecked",
		"AAa": "same same unchecked", "---": "unchecked unchecked unchecked", "AABB": "differs differs differs differs",
		"AAB--": "differs differs differs unchecked unchecked", "AAAB-": "same same same differs unchecked",
	} {
		info := &wire.Table{ID: 2, Name: "t"}
		var list []found
		for i, a := range answers {
			info.Replicas = append(info.Replicas, wire.Replica{Node: string(rune('a' + i)), ID: uint64(10 + i)})
			f := found{digest: wire.Digest{Index: 9, Hash: [32]byte{byte(a)}}}
			switch {
			case a == '-':
				f = found{err: errors.New("gone")}
			case a >= 'a':
				f.digest.Index = 8
			}
			list = append(list, f)
		}
		check, _ := judge(info, list)
		got := make([]string, len(check.Replicas))
		for i, r := range check.Replicas {
			got[i] = string(r.State)
			if r.Node != string(rune('a'+i)) || (r.Why == "") != (r.State != api.ReplicaUnchecked) || (r.Hash == "") != (r.Why != "") {
				t.Errorf("%s: %+v", answers, r)
			}
		}
		if s := strings.Join(got, " "); s != want || fmt.Sprint(check.Position) != "2-9" && answers != "---" {
			t.Errorf("%s: %s at %s, want %s", answers, s, check.Position, want)
		}
	}
}
