package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidal/node/api"
)

func TestEventsAreDocumented(t *testing.T) {
	var want, got [][]string
	for _, k := range api.EventKinds() {
		whose := "cluster"
		switch {
		case k == api.EventHeartbeat || k == api.EventGap:
			whose = "-"
		case k.OfNode():
			whose = "node"
		}
		want = append(want, []string{"`" + string(k) + "`", whose})
	}
	for _, row := range cells(readDoc(t, "docs/events.md"), "`[a-z-]+`") {
		if len(row) == 3 {
			got = append(got, row[:2])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
