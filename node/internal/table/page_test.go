package table_test

import (
	"fmt"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

func pageText(rows []api.Row, more bool) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%s=%s@%d ", r.Key, r.Value, r.Version.Index)
	}
	return fmt.Sprint(b.String(), more)
}

func TestPage(t *testing.T) {
	r := newReplica(t)
	for _, key := range []string{"b", "a", "a/1", "a/2", "a\x00", "é", "c"} {
		r.apply(entry{data: encode(wire.Command{Op: api.OpPut, Key: key, Value: []byte(key)})})
	}
	r.apply(entry{data: encode(wire.Command{Op: api.OpDelete, Key: "b"})})
	other, err := table.Open(r.db, tableID+1)
	r.check(err)
	b := r.db.NewBatch()
	_, _, err = other.Apply(b, 99, 1, 0, encode(wire.Command{Op: api.OpPut, Key: "d", Value: []byte("x")}))
	r.check(err)
	r.check(b.Commit(false))
	for _, c := range []struct {
		in   api.Range
		want string
	}{
		{api.Range{Limit: 10}, "a=a@2 a\x00=a\x00@5 a/1=a/1@3 a/2=a/2@4 c=c@7 é=é@6 false"},
		{api.Range{Limit: 6}, "a=a@2 a\x00=a\x00@5 a/1=a/1@3 a/2=a/2@4 c=c@7 é=é@6 false"},
		{api.Range{Limit: 2}, "a=a@2 a\x00=a\x00@5 true"},
		{api.Range{From: "a\x00", Limit: 2}, "a\x00=a\x00@5 a/1=a/1@3 true"},
		{api.Range{From: "a/", To: "a0", Limit: 10}, "a/1=a/1@3 a/2=a/2@4 false"},
		{api.Range{From: "a", To: "a", Limit: 10}, "false"},
		{api.Range{From: "c", To: "a", Limit: 10}, "false"},
		{api.Range{From: "\xff", Limit: 10}, "false"},
		{api.Range{To: "\x01", Limit: 10}, "false"},
	} {
		rows, more, err := table.Page(r.db, tableID, c.in)
		if got := pageText(rows, more); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v, want %q", c.in, got, err, c.want)
		}
	}
}

// TestPageIsBounded: a page ends with the row that fills it, and values stay apart.
func TestPageIsBounded(t *testing.T) {
	r := newReplica(t)
	size := api.PageBytes / 4
	for i := range 9 {
		value := strings.Repeat(string(rune('a'+i)), size)
		r.apply(entry{data: encode(wire.Command{Op: api.OpPut, Key: fmt.Sprint("k", i), Value: []byte(value)})})
	}
	rows, more, err := table.Page(r.db, tableID, api.Range{Limit: 100})
	if err != nil || len(rows) != 4 || !more {
		t.Fatalf("%d rows, more %t, %v", len(rows), more, err)
	}
	for i, row := range rows {
		if want := strings.Repeat(string(rune('a'+i)), size); string(row.Value) != want {
			t.Errorf("row %d has another value", i)
		}
	}
	rows, more, err = table.Page(r.db, tableID, api.Range{From: "k8", Limit: 100})
	if err != nil || len(rows) != 1 || more {
		t.Errorf("the last page: %d rows, more %t, %v", len(rows), more, err)
	}
	b := r.db.NewBatch()
	b.Set(append(store.GroupKey(uint64(tableID), table.SubRow), "k81"...), []byte{9})
	r.check(b.Commit(false))
	if _, _, err = table.Page(r.db, tableID, api.Range{From: "k81", Limit: 1}); err == nil || !strings.Contains(err.Error(), `row "k81": format 9`) {
		t.Errorf("of a row of a later release: %v", err)
	}
}
