package pki_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/pki"
)

// TestOpenSSLAgrees has another implementation judge what Gen makes.
func TestOpenSSLAgrees(t *testing.T) {
	openssl := program(t, "openssl", "its judgement of the certificates")
	pods, err := pki.StatefulSet{Name: "tidal", Service: "tidal-peers", Namespace: "tidal-cluster", Nodes: 3}.Expand()
	if err != nil {
		t.Fatal(err)
	}
	kube, hosts := t.TempDir(), t.TempDir()
	p := plan(pods...)
	p.Clients = []pki.Client{{Name: "app.example.org", Role: "writer"}}
	mustGen(t, kube, p, time.Now())
	mustGen(t, hosts, abc(), time.Now())
	const pod = "nodes/tidal-0/tls.crt"
	domain := ".tidal-peers.tidal-cluster.svc.cluster.local"
	for _, tt := range []struct {
		name, dir, crt string
		args           []string
		fail           string // part of openssl's answer; "" for none
	}{
		{"its own ordinal", kube, pod, []string{"-verify_hostname", "tidal-0" + domain}, ""},
		{"an ordinal yet to come", kube, pod, []string{"-verify_hostname", "tidal-7" + domain}, ""},
		{"upper case", kube, pod, []string{"-verify_hostname", "TIDAL-7" + domain}, ""},
		{"form svc", kube, pod, []string{"-verify_hostname", "tidal-7.tidal-peers.tidal-cluster.svc"}, ""},
		{"form namespace", kube, pod, []string{"-verify_hostname", "tidal-7.tidal-peers.tidal-cluster"}, ""},
		{"the service", kube, pod, []string{"-verify_hostname", "tidal-peers.tidal-cluster.svc"}, ""},
		{"the service alone", kube, pod, []string{"-verify_hostname", "tidal-peers"}, ""},
		{"two labels", kube, pod, []string{"-verify_hostname", "a.b" + domain}, "hostname mismatch"},
		{"another service", kube, pod, []string{"-verify_hostname", "tidal-0.other.tidal-cluster.svc"}, "hostname mismatch"},
		{"the common name", kube, pod, []string{"-verify_hostname", "tidal-0"}, "hostname mismatch"},
		{"localhost", kube, pod, []string{"-verify_hostname", "localhost"}, ""},
		{"loopback", kube, pod, []string{"-verify_ip", "127.0.0.1"}, ""},
		{"loopback 6", kube, pod, []string{"-verify_ip", "::1"}, ""},
		{"not all of loopback", kube, pod, []string{"-verify_ip", "127.0.0.2"}, "IP address mismatch"},
		{"node as server", kube, pod, []string{"-purpose", "sslserver"}, ""},
		{"node as client", kube, pod, []string{"-purpose", "sslclient"}, ""},
		{"given name", hosts, "nodes/a/tls.crt", []string{"-verify_hostname", "node-a.example.com"}, ""},
		{"given address", hosts, "nodes/a/tls.crt", []string{"-verify_ip", "10.0.0.1"}, ""},
		{"another's name", hosts, "nodes/a/tls.crt", []string{"-verify_hostname", "node-b.example.com"}, "hostname mismatch"},
		{"client as client", kube, "clients/admin/tls.crt", []string{"-purpose", "sslclient"}, ""},
		{"client with dots", kube, "clients/app.example.org/tls.crt", []string{"-purpose", "sslclient"}, ""},
		{"client as server", kube, "clients/admin/tls.crt", []string{"-purpose", "sslserver"}, "unsuitable certificate purpose"},
		{"after a year", kube, pod, []string{"-attime", stampIn(396 * day)}, ""},
		{"after its end", kube, pod, []string{"-attime", stampIn(398 * day)}, "expired"},
		{"on a slow clock", kube, pod, []string{"-attime", stampIn(-50 * time.Minute)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"verify", "-x509_strict", "-CAfile", tt.dir + "/bundle.crt", "-untrusted", tt.dir + "/" + tt.crt}, tt.args...)
			out, err := exec.CommandContext(t.Context(), openssl, append(args, tt.dir+"/"+tt.crt)...).CombinedOutput()
			if (err == nil) != (tt.fail == "") || !strings.Contains(string(out), tt.fail) {
				t.Errorf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		})
	}
}

// stampIn is a time from now on in the form of -attime.
func stampIn(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
