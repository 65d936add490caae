package server_test

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestShaken: a server is not closed on a client whose handshake takes long, nor on one
// that has just ended it and is about to ask; and one that shakes no hands for seconds
// holds nobody up.
func TestShaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		p := g.listen(t, nil)
		conf := &tls.Config{Certificates: []tls.Certificate{brief(t, time.Hour)}}
		dial := func() (client, server net.Conn) {
			here, there := net.Pipe()
			t.Cleanup(func() { _ = here.Close() })
			server = tls.Server(there, conf)
			p.conns <- server
			return here, server
		}
		closable := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if quiet, idle := g.Quiet(time.Second), g.Idle(time.Second); quiet != want || idle != want {
				t.Errorf("%s: quiet is %t, idle is %t", when, quiet, idle)
			}
		}
		client, server := dial()
		closable("one was just dialed", false)
		<-time.After(2 * time.Second)
		closable("its client is slow", false)
		if err := tls.Client(client, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.Shaken(server)
		<-time.After(900 * time.Millisecond)
		closable("its handshake has just ended", false)
		<-time.After(100 * time.Millisecond)
		closable("it was dialed ahead, and is silent since", true)
		dial()
		<-time.After(2900 * time.Millisecond)
		closable("another shakes no hands", false)
		<-time.After(100 * time.Millisecond)
		closable("and has not for long", true)
	})
}
