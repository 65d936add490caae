package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/internal/store"
)

func TestNotedFormat(t *testing.T) {
	disk := vfs.NewMem()
	if err := store.CheckFormat(disk, "FORMAT"); err != nil {
		t.Errorf("of an empty directory: %v", err)
	}
	for range 2 {
		if err := store.WriteFormat(disk, "FORMAT"); err != nil {
			t.Fatal(err)
		}
		if err := store.CheckFormat(disk, "FORMAT"); err != nil {
			t.Errorf("of its own: %v", err)
		}
	}
	for text, want := range map[string]string{
		fmt.Sprint(store.Format + 1): fmt.Sprintf("of format %d, this binary reads up to format %d", store.Format+1, store.Format),
		"x":                          "damaged",
		"":                           "damaged",
	} {
		f, err := disk.Create("FORMAT", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err = f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := store.CheckFormat(disk, "FORMAT"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
