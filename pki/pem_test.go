package pki_test

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tidal/pki"
)

// TestPEMForms feeds a node's files in every form that people make of them.
func TestPEMForms(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	orig := pki.NodeFiles(dir, "a")
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	crt, key, ca := read(orig.Cert), read(orig.Key), read(orig.CA)
	const end = "-----END CERTIFICATE-----\n"
	cut := strings.Index(crt, end) + len(end)
	leaf, inter := crt[:cut], crt[cut:]
	der, _ := pem.Decode([]byte(leaf))
	other := read(pki.NodeFiles(dir, "b").Key)
	otherCA := t.TempDir()
	mustGen(t, otherCA, abc(), start())
	ca2 := read(otherCA + "/bundle.crt")
	const params = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"

	for _, tt := range []struct {
		name, crt, key, ca string
		file, say          string // of the error; "" for none
	}{
		{"as made", crt, key, ca, "", ""},
		{"CRLF", strings.ReplaceAll(crt, "\n", "\r\n"), strings.ReplaceAll(key, "\n", "\r\n"), ca, "", ""},
		{"text around", "subject=x\n" + crt + "the end\n", "Bag Attributes\n" + key, "# roots\n" + ca, "", ""},
		{"byte order mark", "\ufeff" + crt, "\ufeff" + key, "\ufeff" + ca, "", ""},
		{"two roots with a mark", crt, key, "\ufeff" + ca + ca2, "", ""},
		{"two roots, the other first", crt, key, ca2 + ca, "", ""},
		{"no newline at the end", strings.TrimSpace(crt), strings.TrimSpace(key), strings.TrimSpace(ca), "", ""},
		{"reversed chain", inter + leaf, key, ca, "", ""},
		{"root in the chain", crt + ca, key, ca, "", ""},
		{"intermediate twice", crt + inter, key, ca, "", ""},
		{"key and certificate in one file", crt + key, key + crt, ca, "", ""},
		{"parameters before the key", crt, params + key, ca, "", ""},
		{"intermediate in the bundle", leaf, key, ca + inter, "", ""},

		{"intermediate missing", leaf, key, ca, "tls.crt", `ends at an issuer "tidal prod issuing`},
		{"other root", crt, key, ca2, "tls.crt", `ends at an issuer "tidal prod root`},
		{"cut off", crt[:len(crt)-40], key, ca, "tls.crt", "line 15 cannot be read"},
		{"glued", strings.TrimSpace(leaf) + inter, key, ca, "tls.crt", "cannot be read"},
		{"indented", leaf + "  " + strings.ReplaceAll(inter, "\n", "\n  "), key, ca, "tls.crt", "cannot be read"},
		{"bundle cut off", crt, key, ca + ca2[:300], "bundle.crt", "cannot be read"},
		{"bundle glued", crt, key, strings.TrimSpace(ca) + ca2, "bundle.crt", "line 1 cannot be read"},
		{"DER", string(der.Bytes), key, ca, "tls.crt", "looks like DER"},
		{"UTF-16", "\xff\xfe" + crt, key, ca, "tls.crt", "UTF-16"},
		{"empty certificate", "", key, ca, "tls.crt", "holds no PEM block"},
		{"empty key", crt, "", ca, "tls.key", "holds no PEM block"},
		{"swapped", key, crt, ca, "tls.key", "holds no private key, only CERTIFICATE"},
		{"key as certificate", key, key, ca, "tls.crt", "holds no certificate, only PRIVATE KEY"},
		{"other key", crt, other, ca, "tls.crt", "no certificate in it fits the private key"},
		{"two keys", crt, key + other, ca, "tls.key", "more than one private key"},
		{"encrypted", crt, strings.ReplaceAll(key, "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"), ca, "tls.key", "encrypted with a passphrase"},
		{"old encryption", crt, "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n", ca, "tls.key", "encrypted with a passphrase"},
		{"damaged key", crt, strings.Replace(key, "MIG", "MIH", 1), ca, "tls.key", "cannot be used"},
		{"damaged certificate", strings.Replace(crt, "MII", "MIJ", 1), key, ca, "tls.crt", "block 1 is not a certificate"},
		{"OpenSSH key", crt, strings.ReplaceAll(key, "PRIVATE KEY", "OPENSSH PRIVATE KEY"), ca, "tls.key", "not supported"},
		{"leaf as bundle", crt, key, crt, "bundle.crt", "not an authority's"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := t.TempDir()
			f := pki.Files{CA: filepath.Join(d, "bundle.crt"), Cert: filepath.Join(d, "tls.crt"), Key: filepath.Join(d, "tls.key")}
			for path, data := range map[string]string{f.CA: tt.ca, f.Cert: tt.crt, f.Key: tt.key} {
				if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := pki.LoadServer(f, "prod", "a", start())
			if tt.say == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, pki.KindFiles, filepath.Join(d, tt.file), tt.say)
		})
	}
}

func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	good := pki.NodeFiles(dir, "a")
	for _, tt := range []struct {
		change func(f *pki.Files)
		say    string
	}{
		{func(f *pki.Files) { f.CA = "" }, "no trust bundle"},
		{func(f *pki.Files) { f.CA = "/nowhere/x" }, "/nowhere/x: no such file"},
		{func(f *pki.Files) { f.Cert = "" }, "together"},
		{func(f *pki.Files) { f.Key = "" }, "together"},
		{func(f *pki.Files) { f.Cert = "/nowhere/x" }, "/nowhere/x: no such file"},
		{func(f *pki.Files) { f.Key = dir }, dir + ": is not a regular file"},
	} {
		f := good
		tt.change(&f)
		_, err := pki.LoadServer(f, "prod", "a", start())
		wantError(t, err, pki.KindFiles, tt.say)
	}
	_, err := pki.LoadClient(pki.Files{CA: good.CA, Cert: good.Cert}, start())
	wantError(t, err, pki.KindFiles, "together")
	_, err = pki.LoadServer(good, "prod", "b", start())
	wantError(t, err, pki.KindFiles, "spiffe://prod/node/a, and node b of cluster prod is wanted")
	_, err = pki.LoadServer(good, "staging", "a", start())
	wantError(t, err, pki.KindFiles, "node a of cluster staging is wanted")
	if _, err = pki.LoadServer(good, "", "", start()); err == nil {
		t.Error("a server without a name was loaded")
	}
}

// No input makes the decoder panic or drop a block in silence.
func FuzzPEM(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN A-----\n-----BEGIN B-----\nAAAA\n-----END B-----\n"))
	f.Add([]byte{0x30, 0x82})
	f.Fuzz(func(t *testing.T, data []byte) {
		certs, _, err := pki.DecodePEM(data)
		if err == nil && bytes.Count(data, []byte("-----BEGIN ")) < certs {
			t.Errorf("%d certificates of %d blocks", certs, bytes.Count(data, []byte("-----BEGIN ")))
		}
	})
}
