package pki_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tidal/pki"
)

func survey(t *testing.T, path string, now time.Time) map[string]pki.Entry {
	t.Helper()
	all, err := pki.Survey(path, now)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]pki.Entry{}
	for _, e := range all {
		name := e.Kind
		if e.Kind == "node" || e.Kind == "client" {
			name += "/" + e.Name
		}
		out[name] = e
	}
	return out
}

func TestSurvey(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	for _, tt := range []struct {
		at          time.Time
		node, inter pki.State
		problem     string
	}{
		{start(), pki.StateOK, pki.StateOK, ""},
		{start().Add(264 * day), pki.StateOK, pki.StateOK, ""},
		{start().Add(266 * day), pki.StateDue, pki.StateOK, ""},
		{start().Add(398 * day), pki.StateExpired, pki.StateOK, "expired at"},
		{start().Add(720 * day), pki.StateExpired, pki.StateDue, "expired at"},
		{start().Add(-2 * time.Hour), pki.StateEarly, pki.StateOK, "and the clock says 2026-03-01T10:00:00Z"},
		{start().Add(-26 * time.Hour), pki.StateEarly, pki.StateEarly, "not valid before"},
	} {
		got := survey(t, dir, tt.at)
		if len(got) != 7 {
			t.Fatalf("%d entries: %v", len(got), got)
		}
		a := got["node/a"]
		if a.State != tt.node || got["intermediate"].State != tt.inter || !strings.Contains(a.Problem, tt.problem) {
			t.Errorf("%s: a is %s (%s), the intermediate %s", tt.at, a.State, a.Problem, got["intermediate"].State)
		}
		if tt.node == pki.StateEarly && !strings.Contains(a.Hint, "clock") {
			t.Errorf("hint %q", a.Hint)
		}
	}
	all, err := pki.Survey(dir+"/nodes/a/tls.crt", start())
	if err != nil || len(all) != 2 || all[0].Kind != "file" || all[0].Identity != "spiffe://prod/node/a" || pki.Worst(all) != pki.StateOK {
		t.Errorf("%+v, %v", all, err)
	}
	for path, say := range map[string]string{"/nowhere/x": "no such file", t.TempDir(): "holds no certificates"} {
		_, err = pki.Survey(path, start())
		wantError(t, err, pki.KindFiles, say)
	}
}

// Each way in which a directory can be broken is said of the file, and of no other.
func TestSurveyFindsWhatIsBroken(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(dir, other string) error
		where string
		say   string
	}{
		{"certificate cut off", func(dir, _ string) error { return os.Truncate(dir+"/nodes/a/tls.crt", 300) }, "node/a", "line 1"},
		{"key of another", func(dir, other string) error { return os.Rename(other+"/nodes/a/tls.key", dir+"/nodes/a/tls.key") }, "node/a", "fits the private key"},
		{"certificate of another authority", func(dir, other string) error {
			return errors.Join(os.Rename(other+"/nodes/a/tls.key", dir+"/nodes/a/tls.key"), os.Rename(other+"/nodes/a/tls.crt", dir+"/nodes/a/tls.crt"))
		}, "node/a", "no root in"},
		{"certificate of another node", func(dir, _ string) error {
			return errors.Join(os.Rename(dir+"/nodes/b/tls.key", dir+"/nodes/a/tls.key"), os.Rename(dir+"/nodes/b/tls.crt", dir+"/nodes/a/tls.crt"))
		}, "node/a", "folder of node/a"},
		{"key open to all", func(dir, _ string) error { return os.Chmod(dir+"/nodes/a/tls.key", 0o644) }, "node/a", "others than its owner"},
		{"bundle gone", func(dir, _ string) error { return os.Remove(dir + "/bundle.crt") }, "bundle", "no such file"},
		{"leaf in the bundle", func(dir, _ string) error { return os.Rename(dir+"/nodes/b/tls.crt", dir+"/bundle.crt") }, "bundle", "not an authority's"},
		{"intermediate cut off", func(dir, _ string) error { return os.Truncate(dir+"/ca/intermediate.crt", 99) }, "intermediate", "line 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			mustGen(t, dir, abc(), start())
			mustGen(t, other, abc(), start())
			if err := tt.spoil(dir, other); err != nil {
				t.Fatal(err)
			}
			got := survey(t, dir, start())
			if e := got[tt.where]; e.State != pki.StateBroken && tt.where != "bundle" || !strings.Contains(e.Problem, tt.say) && tt.name != "leaf in the bundle" {
				t.Errorf("%s is %s: %s", tt.where, e.State, e.Problem)
			}
			if tt.where == "bundle" {
				if e := got["node/a"]; e.State != pki.StateBroken {
					t.Errorf("without a bundle node a is %s: %s", e.State, e.Problem)
				}
				return
			}
			for name, e := range got {
				if name != tt.where && name != "node/b" && e.State != pki.StateOK {
					t.Errorf("%s is %s: %s", name, e.State, e.Problem)
				}
			}
		})
	}
}
