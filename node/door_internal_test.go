package node

import (
	"net"
	"testing"
	"time"
)

// TestDoorWaitsForTheLastOne: a door is not shut while a connection that it let in is
// on its way to who serves it: a restart would close it before anybody saw it.
func TestDoorWaitsForTheLastOne(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := newDoor(l)
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := d.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	shut := make(chan error, 1)
	go func() {
		shut <- d.shutIn()
	}()
	<-d.shut
	select {
	case err := <-shut:
		t.Fatalf("it is shut while a connection is on its way: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	ended := make(chan error, 1)
	go func() { // the connection is known, and another is asked for
		_, err := d.Accept()
		ended <- err
	}()
	if err := <-shut; err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a shut door let somebody in")
	}
}
