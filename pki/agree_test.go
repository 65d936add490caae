package pki_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tidal/pki"
)

// kube makes certificates for pods, valid now.
func kube(t *testing.T) string {
	t.Helper()
	pods, err := pki.StatefulSet{Name: "tidal", Service: "tidal-peers", Namespace: "ns", Nodes: 2}.Expand()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mustGen(t, dir, plan(pods...), time.Now())
	return dir
}

// program finds a program, or skips the test and says what was not tried.
func program(t *testing.T, name, untried string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s, which is not installed: %s was not tried", name, untried)
	}
	return path
}

// agreed are the names that a pod's certificate is valid for, and not: every
// program must see it so.
func agreed() map[string]bool {
	const domain = ".tidal-peers.ns.svc.cluster.local"
	return map[string]bool{
		"tidal-0" + domain: true, "tidal-7" + domain: true, "TIDAL-7" + domain: true, "tidal-7.tidal-peers.ns": true,
		"tidal-peers.ns.svc": true, "tidal-peers": true, "localhost": true, "127.0.0.1": true,
		"a.b" + domain: false, "tidal-0": false, "tidal-0.other.ns.svc": false, "other": false,
	}
}

// curl shows the admin's certificate to a node and agrees with Go about names.
func TestCurlAgrees(t *testing.T) {
	curl := program(t, "curl", "what it makes of the certificates")
	dir := kube(t)
	k, err := pki.LoadServer(pki.NodeFiles(dir, "tidal-0"), "prod", "tidal-0", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(answer(t, k.ServerTLS()))
	if err != nil {
		t.Fatal(err)
	}
	run := func(host string, f pki.Files) string {
		args := []string{
			"-sS", "--max-time", "10", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", dir + "/bundle.crt",
			"--resolve", host + ":" + port + ":127.0.0.1", "https://" + host + ":" + port + "/cluster/status/local",
		}
		if f.Cert != "" {
			args = append(args, "--cert", f.Cert, "--key", f.Key)
		}
		out, _ := exec.CommandContext(t.Context(), curl, args...).CombinedOutput() // it says so itself
		return string(out)
	}
	admin := pki.ClientFiles(dir, "admin")
	for host, ok := range agreed() {
		want := "200"
		if !ok {
			want = "(60)"
		}
		if got := run(host, admin); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
	if got := run("localhost", pki.Files{}); !strings.Contains(got, "403") {
		t.Errorf("without a certificate: %s", got)
	}
	if got := run("localhost", pki.NodeFiles(dir, "tidal-1")); !strings.Contains(got, "403") { // it is no client
		t.Errorf("a node's certificate: %s", got)
	}
	other := world(t)
	if got := run("localhost", pki.ClientFiles(other, "admin")); !strings.Contains(got, "(56)") && !strings.Contains(got, "(35)") {
		t.Errorf("another authority's certificate: %s", got)
	}
}

// s_client dials a node, with Go as the server.
func TestOpenSSLDials(t *testing.T) {
	openssl := program(t, "openssl", "dialling with s_client")
	dir := kube(t)
	k, err := pki.LoadServer(pki.NodeFiles(dir, "tidal-0"), "prod", "tidal-0", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	address := answer(t, k.ServerTLS())
	run := func(host string, f pki.Files) string {
		flag := "-verify_hostname"
		if net.ParseIP(host) != nil {
			flag = "-verify_ip"
		}
		cmd := exec.CommandContext(t.Context(), openssl, "s_client", "-connect", address, "-CAfile", dir+"/bundle.crt", flag, host,
			"-verify_return_error", "-ign_eof", "-cert", f.Cert, "-key", f.Key, "-cert_chain", f.Cert)
		cmd.Stdin = strings.NewReader("GET /cluster/status/local HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		out, _ := cmd.CombinedOutput() // it says so itself
		return string(out)
	}
	for host, ok := range agreed() {
		if got := run(host, pki.ClientFiles(dir, "admin")); strings.Contains(got, "HTTP/1.1 200") != ok || !ok && !strings.Contains(got, "mismatch") {
			t.Errorf("%s: want it accepted: %t\n%s", host, ok, got)
		}
	}
	if got := run("localhost", pki.NodeFiles(dir, "tidal-1")); !strings.Contains(got, "HTTP/1.1 403") {
		t.Errorf("a node's certificate as a client's:\n%s", got)
	}
}

// s_server serves with a node's certificate, and Go dials it; with a client's it
// is refused.
func TestOpenSSLServes(t *testing.T) {
	openssl := program(t, "openssl", "serving with s_server")
	dir := kube(t)
	node := client(t, pki.NodeFiles(dir, "tidal-1"))
	for _, tt := range []struct {
		f    pki.Files
		fail string
	}{{pki.NodeFiles(dir, "tidal-0"), ""}, {pki.ClientFiles(dir, "admin"), "not made for serving"}} {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, openssl, "s_server", "-accept", "127.0.0.1:0", "-www", "-cert", tt.f.Cert, "-key", tt.f.Key,
			"-cert_chain", tt.f.Cert, "-CAfile", dir+"/bundle.crt", "-Verify", "1", "-verify_return_error", "-naccept", "1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err = cmd.Start(); err != nil {
			t.Fatal(err)
		}
		address := ""
		lines := bufio.NewScanner(out)
		for address == "" && lines.Scan() {
			address, _ = strings.CutPrefix(lines.Text(), "ACCEPT ")
			if !strings.Contains(lines.Text(), "ACCEPT ") {
				address = ""
			}
		}
		go io.Copy(io.Discard, out)
		if address == "" {
			t.Fatal("s_server does not say where it listens")
		}
		x := exam(t, address, "localhost", "", node, time.Now())
		if bad := x.Failed(); tt.fail == "" && bad != nil || tt.fail != "" && (bad == nil || !strings.Contains(bad.Detail, tt.fail)) {
			t.Errorf("%s: %+v, want %q", tt.f.Cert, bad, tt.fail)
		}
		cancel()
		_ = cmd.Wait() // killed
	}
}
