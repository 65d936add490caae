package pki_test

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tidal/pki"
)

func renewed(r pki.Report) []string {
	var all []string
	for _, f := range r.Files {
		if f.State == "renewed" {
			all = append(all, f.Kind+"/"+f.Name)
		}
	}
	return all
}

func TestRenewDue(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	before := tree(t, dir)
	r, err := pki.Renew(t.Context(), dir, pki.Renewal{}, start().Add(200*day))
	if err != nil || r.Made() != 0 || !maps.Equal(before, tree(t, dir)) {
		t.Fatalf("with half its life left: %v, %v", renewed(r), err)
	}
	old := cert(t, dir+"/nodes/a/tls.crt")
	late := start().Add(300 * day)
	r, err = pki.Renew(t.Context(), dir, pki.Renewal{}, late)
	want := []string{"node/a", "node/b", "node/c", "client/admin"}
	if err != nil || !slices.Equal(renewed(r), want) {
		t.Fatalf("renewed %v, %v; want %v", renewed(r), err, want)
	}
	after := tree(t, dir)
	for name, data := range before {
		if name != "serials.jsonl" && (after[name] == data) != (name[:3] != "nod" && name[:3] != "cli" || name[len(name)-3:] == "key") {
			t.Errorf("%s changed, or did not", name)
		}
	}
	c := cert(t, dir+"/nodes/a/tls.crt")
	if diff := cmp.Diff(old.DNSNames, c.DNSNames); diff != "" {
		t.Error(diff)
	}
	if !slices.EqualFunc(old.IPAddresses, c.IPAddresses, net.IP.Equal) || old.URIs[0].String() != c.URIs[0].String() {
		t.Errorf("addresses or identity changed: %v %v", c.IPAddresses, c.URIs)
	}
	if old.SerialNumber.Cmp(c.SerialNumber) == 0 || !c.NotAfter.Equal(late.Add(397*day)) {
		t.Errorf("serial %x, ends %s", c.SerialNumber, c.NotAfter)
	}
	if _, err = pki.LoadServer(pki.NodeFiles(dir, "a"), "prod", "a", late); err != nil {
		t.Error(err)
	}
}

// A certificate that has expired is renewed like any other: nothing of it need be
// valid but its names. Its key may be elsewhere.
func TestRenewExpired(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	if err := os.Remove(dir + "/nodes/b/tls.key"); err != nil {
		t.Fatal(err)
	}
	pub := cert(t, dir+"/nodes/b/tls.crt").PublicKey
	late := start().Add(500 * day)
	r, err := pki.Renew(t.Context(), dir, pki.Renewal{What: []string{"node/a", "node/b"}}, late)
	if err != nil || !slices.Equal(renewed(r), []string{"node/a", "node/b"}) {
		t.Fatalf("renewed %v, %v", renewed(r), err)
	}
	if _, err = pki.LoadServer(pki.NodeFiles(dir, "a"), "prod", "a", late); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(pub, cert(t, dir+"/nodes/b/tls.crt").PublicKey); diff != "" {
		t.Error(diff)
	}
	_, err = pki.Renew(t.Context(), dir, pki.Renewal{What: []string{"node/b"}, Rekey: true}, late)
	wantError(t, err, pki.KindFiles, "nodes/b/tls.key", "is not here", "tidal certs csr")
	_, err = pki.Renew(t.Context(), dir, pki.Renewal{What: []string{"node/z"}}, late)
	wantError(t, err, pki.KindUsage, `"node/z"`, "tidal certs check")
	_, err = pki.Renew(t.Context(), dir, pki.Renewal{What: []string{"node/a"}, All: true}, late)
	wantError(t, err, pki.KindUsage, "some are named")
}

func TestRekey(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	before := tree(t, dir)
	if _, err := pki.Renew(t.Context(), dir, pki.Renewal{What: []string{"node/a"}, Rekey: true}, start()); err != nil {
		t.Fatal(err)
	}
	after := tree(t, dir)
	for name, data := range before {
		changes := name == "nodes/a/tls.key" || name == "nodes/a/tls.crt" || name == "serials.jsonl"
		if (after[name] != data) != changes {
			t.Errorf("%s changed, or did not", name)
		}
	}
	if _, err := pki.LoadServer(pki.NodeFiles(dir, "a"), "prod", "a", start()); err != nil {
		t.Error(err)
	}
	// Killed between the key and its certificate: said so, and completed by the same run.
	_, err := pki.RenewStop(t.Context(), dir, pki.Renewal{What: []string{"node/a"}, Rekey: true}, start(), 2)
	if !errors.Is(err, pki.ErrStopped) {
		t.Fatal(err)
	}
	key := tree(t, dir)["nodes/a/tls.key"]
	_, err = pki.Renew(t.Context(), dir, pki.Renewal{}, start())
	wantError(t, err, pki.KindFiles, "nodes/a/tls.key", "renew --rekey")
	if _, err = pki.Renew(t.Context(), dir, pki.Renewal{What: []string{"node/a"}, Rekey: true}, start()); err != nil {
		t.Fatal(err)
	}
	if tree(t, dir)["nodes/a/tls.key"] != key {
		t.Error("the key of the killed run was thrown away")
	}
	if _, err = pki.LoadServer(pki.NodeFiles(dir, "a"), "prod", "a", start()); err != nil {
		t.Error(err)
	}
}

// The intermediate keeps its key, so what it signed stays valid; and what it
// signs next is valid under the same root.
func TestRenewIntermediate(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	late := start().Add(640 * day)
	_, err := pki.Renew(t.Context(), dir, pki.Renewal{What: []string{"node/a"}}, late)
	wantError(t, err, pki.KindRefused, "has 90 days left", "tidal certs renew ca")
	r, err := pki.Renew(t.Context(), dir, pki.Renewal{}, late)
	if err != nil || len(renewed(r)) != 5 || renewed(r)[0] != "intermediate/" {
		t.Fatalf("renewed %v, %v", renewed(r), err)
	}
	early := t.TempDir()
	mustGen(t, early, abc(), start())
	if _, err = pki.Renew(t.Context(), early, pki.Renewal{What: []string{"ca"}}, start().Add(day)); err != nil {
		t.Fatal(err)
	}
	more := plan(pki.Node{ID: "d"})
	mustGen(t, early, more, start().Add(day))
	for _, id := range []string{"a", "d"} {
		if _, err = pki.LoadServer(pki.NodeFiles(early, id), "prod", id, start().Add(day)); err != nil {
			t.Error(err)
		}
	}
	if err = os.Remove(early + "/ca/root.key"); err != nil {
		t.Fatal(err)
	}
	_, err = pki.Renew(t.Context(), early, pki.Renewal{What: []string{"ca"}}, start().Add(day))
	wantError(t, err, pki.KindFiles, "root.key", "put it back")
	r, err = pki.Renew(t.Context(), early, pki.Renewal{}, start().Add(550*day))
	if err != nil || len(r.Notes) != 1 || len(renewed(r)) != 5 {
		t.Errorf("without the root's key: renewed %v, notes %v, %v", renewed(r), r.Notes, err)
	}
}

func TestRenewRefusesForeignFolders(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	if err := errors.Join(os.Rename(dir+"/nodes/a", dir+"/nodes/x"), os.Rename(dir+"/nodes/b", dir+"/nodes/a")); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	_, err := pki.Renew(t.Context(), dir, pki.Renewal{All: true}, start().Add(time.Hour))
	wantError(t, err, pki.KindFiles, "nodes/a/tls.crt", "spiffe://prod/node/b", "folder of node/a")
	if !maps.Equal(before, tree(t, dir)) {
		t.Error("a refused run changed something")
	}
}
