package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// door is the node's port. It can stop taking connections in while its socket
// stays open: who connects then waits for the next one who listens on it.
type door struct {
	net.Listener

	shut, still, closed chan struct{}
	rest, once          sync.Once
}

// stillMost bounds the wait for whoever accepts: it may have ended.
const stillMost = 2 * time.Second

func newDoor(l net.Listener) *door {
	return &door{Listener: l, shut: make(chan struct{}), still: make(chan struct{}), closed: make(chan struct{})}
}

// Accept implements net.Listener. Once the door is shut it waits for Close.
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err == nil {
		return c, nil
	}
	select {
	case <-d.shut:
		d.rest.Do(func() { close(d.still) })
		<-d.closed
		return nil, net.ErrClosed
	default:
		return nil, err
	}
}

// Close implements net.Listener.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

// fileListener is a listener whose socket can be passed on.
type fileListener interface {
	File() (*os.File, error)
	SetDeadline(t time.Time) error
}

var errNoSocket = errors.New("the port is no socket of the system")

// keep returns a descriptor that keeps the socket open.
func (d *door) keep() (*os.File, error) {
	l, ok := d.Listener.(fileListener)
	if !ok {
		return nil, errNoSocket
	}
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("keep the port: %w", err)
	}
	return f, nil
}

// shutIn stops taking connections in. Whoever accepts has come back for another
// connection by then: the last one that Accept had got is known to it, and is not closed
// unseen.
func (d *door) shutIn() error {
	l, ok := d.Listener.(fileListener)
	if !ok {
		return errNoSocket
	}
	close(d.shut)
	// A connection that Accept has already got is served.
	if err := l.SetDeadline(time.Unix(1, 0)); err != nil {
		return fmt.Errorf("stop taking connections in: %w", err)
	}
	t := time.NewTimer(stillMost)
	defer t.Stop()
	select {
	case <-d.still:
	case <-t.C:
	}
	return nil
}
