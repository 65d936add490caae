package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// DefaultTimeout is how long a call may take in all.
const DefaultTimeout = 30 * time.Second

// Options are what a Client is made of.
type Options struct {
	Endpoints []string    // URLs of nodes, https://host:port or http://host:port
	TLS       *tls.Config // for https; nil: the system's roots and no client certificate
	// Renewed counts how often what TLS shows or trusts has changed; connections from
	// before a change are used no more. nil: it never changes.
	Renewed func() uint64
	Timeout time.Duration // of a call in all; default DefaultTimeout
	// Conns is how many idle connections to each node are kept; default 64.
	Conns int
	// Once has every call be one attempt at one node, the next one each time: what
	// comes of it is the result, and writes have no Idempotency-Key of their own. It
	// is for those who measure.
	Once bool
	// Streams has requests for rows go over streams of frames, many at a time on one
	// connection to a node, straight to the owner as soon as it is known. Where no
	// stream is to be had, and for everything else, it is plain HTTP.
	Streams bool
}

// Client talks to a cluster. Its methods may be called from any goroutine.
type Client struct {
	endpoints []string
	o         Options
	pool      atomic.Pointer[pool]
	preferred atomic.Int64 // index of the endpoint that answered last
	streams   *streams     // nil: none are wanted
}

// New returns a client. It connects to nothing yet.
func New(o Options) (*Client, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("no endpoint to talk to")
	}
	c := &Client{o: o}
	if c.o.Timeout <= 0 {
		c.o.Timeout = DefaultTimeout
	}
	if c.o.Conns <= 0 {
		c.o.Conns = 64
	}
	for _, e := range o.Endpoints {
		checked, err := checkEndpoint(e)
		if err != nil {
			return nil, err
		}
		c.endpoints = append(c.endpoints, checked)
	}
	c.pool.Store(c.newPool(0))
	if o.Streams {
		c.streams = newStreams(c)
	}
	return c, nil
}

// pool is connections that were made with the same certificates.
type pool struct {
	http   *http.Client
	serial uint64 // of the certificates
}

func (c *Client) newPool(serial uint64) *pool {
	return &pool{serial: serial, http: &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
			TLSClientConfig:     c.o.TLS,
			TLSHandshakeTimeout: 5 * time.Second,
			MaxIdleConnsPerHost: c.o.Conns,
			IdleConnTimeout:     90 * time.Second, // less than the server's, which then never closes under a request
			DisableCompression:  true,             // values are bytes
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// web returns the pool for the next request: another one than before if the
// certificates changed. What is under way in the old one ends there.
func (c *Client) web() *pool {
	p := c.pool.Load()
	if c.o.Renewed == nil {
		return p
	}
	serial := c.o.Renewed()
	if serial == p.serial {
		return p
	}
	if next := c.newPool(serial); c.pool.CompareAndSwap(p, next) {
		p.http.CloseIdleConnections()
	}
	return c.pool.Load()
}

// done closes the connections of a pool that is no longer the one in use, as they
// become idle.
func (c *Client) done(p *pool) {
	if p != c.pool.Load() {
		p.http.CloseIdleConnections()
	}
}

// Endpoints returns the URLs that the client tries.
func (c *Client) Endpoints() []string { return slices.Clone(c.endpoints) }

// Close closes the connections that are idle, and the streams with what is under way
// on them.
func (c *Client) Close() {
	if c.streams != nil {
		c.streams.close()
	}
	c.pool.Load().http.CloseIdleConnections()
}

// portOK reports whether a URL can have this port; "" is that of its scheme.
func portOK(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

func checkEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("endpoint %q is not a URL", text)
	case u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "", !portOK(u.Port()):
		return "", fmt.Errorf("endpoint %q: want https://HOST:PORT", text)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", fmt.Errorf("endpoint %q: want no more than https://HOST:PORT", text)
	}
	return u.Scheme + "://" + u.Host, nil
}
