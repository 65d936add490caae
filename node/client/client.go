package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
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
}

// Client talks to a cluster. Its methods may be called from any goroutine.
type Client struct {
	endpoints []string
	timeout   time.Duration
	tls       *tls.Config
	renewed   func() uint64
	pool      atomic.Pointer[pool]
	preferred atomic.Int64 // index of the endpoint that answered last
}

// New returns a client. It connects to nothing yet.
func New(o Options) (*Client, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("no endpoint to talk to")
	}
	c := &Client{timeout: o.Timeout, tls: o.TLS, renewed: o.Renewed}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	for _, e := range o.Endpoints {
		checked, err := checkEndpoint(e)
		if err != nil {
			return nil, err
		}
		c.endpoints = append(c.endpoints, checked)
	}
	c.pool.Store(newPool(o.TLS, 0))
	return c, nil
}

// pool is connections that were made with the same certificates.
type pool struct {
	http   *http.Client
	serial uint64 // of the certificates
}

func newPool(secure *tls.Config, serial uint64) *pool {
	return &pool{serial: serial, http: &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
			TLSClientConfig:     secure,
			TLSHandshakeTimeout: 5 * time.Second,
			MaxIdleConnsPerHost: 64,
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
	if c.renewed == nil {
		return p
	}
	serial := c.renewed()
	if serial == p.serial {
		return p
	}
	if next := newPool(c.tls, serial); c.pool.CompareAndSwap(p, next) {
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

// Close closes the connections that are idle.
func (c *Client) Close() { c.pool.Load().http.CloseIdleConnections() }

func checkEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("endpoint %q is not a URL", text)
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "":
		return "", fmt.Errorf("endpoint %q: want https://HOST:PORT", text)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", fmt.Errorf("endpoint %q: want no more than https://HOST:PORT", text)
	}
	return u.Scheme + "://" + u.Host, nil
}
