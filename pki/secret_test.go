package pki_test

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"tidal/pki"
)

// fields returns the data of a secret.
func fields(t *testing.T, text []byte) map[string]string {
	t.Helper()
	head, data, ok := strings.Cut(string(text), "\ndata:\n")
	if !ok || !strings.HasPrefix(head, "apiVersion: v1\nkind: Secret\nmetadata:\n  name: ") {
		t.Fatalf("not a secret:\n%s", head)
	}
	out := map[string]string{"": head}
	for line := range strings.Lines(data) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		raw, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(raw)
	}
	return out
}

func TestExportSecret(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	files := tree(t, dir)
	text, err := pki.ExportSecret(dir, pki.Secret{Name: "tidal-tls", Namespace: "ns"})
	if err != nil {
		t.Fatal(err)
	}
	got := fields(t, text)
	if len(got) != 8 || !strings.HasSuffix(got[""], "  namespace: ns\ntype: Opaque") || got["b.key"] != files["nodes/b/tls.key"] || got["bundle.crt"] != files["bundle.crt"] {
		t.Errorf("%d fields under\n%s", len(got), got[""])
	}
	for _, tt := range []struct {
		s      pki.Secret
		folder string
	}{{pki.Secret{Name: "x", Node: "a"}, "nodes/a"}, {pki.Secret{Name: "x", Client: "admin"}, "clients/admin"}} {
		text, err = pki.ExportSecret(dir, tt.s)
		if err != nil {
			t.Fatal(err)
		}
		got = fields(t, text)
		if len(got) != 4 || !strings.HasSuffix(got[""], "type: kubernetes.io/tls") || got["tls.crt"] != files[tt.folder+"/tls.crt"] ||
			got["tls.key"] != files[tt.folder+"/tls.key"] || got["ca.crt"] != files["bundle.crt"] {
			t.Errorf("%d fields under\n%s", len(got), got[""])
		}
	}
	for _, s := range []pki.Secret{{Name: ""}, {Name: "X"}, {Name: "x", Namespace: "N"}, {Name: "x", Node: "z"}, {Name: "x", Node: "a", Client: "admin"}} {
		_, err = pki.ExportSecret(dir, s)
		wantError(t, err, pki.KindUsage)
	}
	if err = os.Remove(dir + "/nodes/b/tls.key"); err != nil {
		t.Fatal(err)
	}
	_, err = pki.ExportSecret(dir, pki.Secret{Name: "x"})
	wantError(t, err, pki.KindFiles, "nodes/b/tls.key: is not here", "--node")
}
