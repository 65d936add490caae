package server_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// many serves the rig on as many connections as a test makes.
func (g *rig) many(t *testing.T, secure *tls.Config) (dial func() (net.Conn, *bufio.Reader)) {
	t.Helper()
	p := g.listen(t, secure)
	return func() (net.Conn, *bufio.Reader) {
		here, there := net.Pipe()
		p.conns <- there
		t.Cleanup(func() { _ = here.Close() })
		return here, bufio.NewReader(here)
	}
}

const getRow = "GET " + rowK + " HTTP/1.1\r\nHost: a\r\n\r\n"

// TestRecycle: after a change of certificates the next answer on each connection is
// its last, whole; one that stays silent is left alone for a while, and then closed;
// one that came later is not touched.
func TestRecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		dial := g.many(t, nil)
		ask := func(c net.Conn, r *bufio.Reader) (last bool) {
			t.Helper()
			_, _ = io.WriteString(c, getRow)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%d, %v", resp.StatusCode, err)
			}
			return resp.Close
		}
		busy, busyR := dial()
		silent, silentR := dial()
		for _, last := range []bool{ask(busy, busyR), ask(silent, silentR), ask(busy, busyR)} {
			if last {
				t.Error("an answer before the change is the last of its connection")
			}
		}
		<-time.After(10 * time.Second)
		g.Recycle()
		later, laterR := dial()
		if !ask(busy, busyR) {
			t.Error("the connection from before goes on")
		}
		if ask(later, laterR) {
			t.Error("the connection from after ends")
		}
		ended := make(chan time.Time, 1)
		go func() {
			_, _ = silentR.ReadByte()
			ended <- time.Now()
		}()
		g.Tidy(time.Now())
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("a connection that spoke 10 s ago was closed at once")
		default:
		}
		<-time.After(6 * time.Second)
		g.Tidy(time.Now())
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("a silent connection from before the change is open")
		}
		if ask(later, laterR) || g.Connections() != 1 {
			t.Errorf("%d connections are left, want the one from after the change", g.Connections())
		}
	})
}

// TestRecycleEndsStreams: an answer that is under way while certificates change has
// its time, and one that goes on and on is ended.
func TestRecycleEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
		c, r := g.many(t, nil)()
		_, _ = io.WriteString(c, getRow)
		<-g.entered
		g.Recycle()
		<-time.After(59 * time.Second)
		g.Tidy(time.Now())
		synctest.Wait()
		if g.Connections() != 1 {
			t.Fatal("an answer was cut off within a minute")
		}
		<-time.After(2 * time.Second)
		g.Tidy(time.Now())
		if _, err := r.ReadByte(); err == nil {
			t.Error("the connection is still open")
		}
	})
}

// brief is a certificate that ends soon.
func brief(t *testing.T, life time.Duration) tls.Certificate {
	t.Helper()
	return named(t, "admin", life)
}

// named is brief of somebody.
func named(t *testing.T, who string, life time.Duration) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: who}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life), DNSNames: []string{"a"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestExpiry: a connection ends with the certificate that its client has shown: an
// idle one at once, and a request that comes first is answered 401.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		dial := g.many(t, &tls.Config{Certificates: []tls.Certificate{brief(t, time.Hour)}, ClientAuth: tls.RequireAnyClientCert})
		secure := func() (*tls.Conn, *bufio.Reader) {
			raw, _ := dial()
			c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{brief(t, 10*time.Second)}})
			return c, bufio.NewReader(c)
		}
		c, r := secure()
		idle, idleR := secure()
		for i, conn := range []*tls.Conn{c, idle} {
			_, _ = io.WriteString(conn, getRow)
			if status, body := answerOf(t, []*bufio.Reader{r, idleR}[i]); status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
		}
		if got := g.Conns(); len(got) != 2 || len(got[0].Peer.PeerCertificates) != 1 {
			t.Fatalf("%d connections are listed", len(got))
		}
		<-time.After(9 * time.Second)
		g.Tidy(time.Now())
		if g.Connections() != 2 {
			t.Fatal("a connection ended before its certificate")
		}
		<-time.After(2 * time.Second)
		_, _ = io.WriteString(c, getRow)
		if status, body := answerOf(t, r); status != http.StatusUnauthorized || !strings.Contains(body, "has expired meanwhile") {
			t.Errorf("%d %s", status, body)
		}
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is still open: %v", err)
		}
		g.Tidy(time.Now())
		if _, err := idleR.ReadByte(); err == nil {
			t.Error("the idle connection is still open")
		}
	})
}

// TestCloseIf closes what a function finds fault with, also under a request.
func TestCloseIf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		dial := g.many(t, &tls.Config{Certificates: []tls.Certificate{brief(t, time.Hour)}, ClientAuth: tls.RequestClientCert})
		conns := make([]*tls.Conn, 2)
		for i, certs := range [][]tls.Certificate{{brief(t, time.Hour)}, nil} {
			raw, _ := dial()
			conns[i] = tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: certs})
			_, _ = io.WriteString(conns[i], "GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
			answerOf(t, bufio.NewReader(conns[i]))
		}
		g.CloseIf(func(cs *tls.ConnectionState) error {
			if len(cs.PeerCertificates) > 0 {
				return errors.New("revoked")
			}
			return nil
		})
		synctest.Wait()
		if _, err := conns[0].Read(make([]byte, 1)); err == nil || g.Connections() != 1 {
			t.Errorf("%d connections are left, %v", g.Connections(), err)
		}
	})
}
