package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tidal/node/client"
)

// TestTLS: who does not trust whom is told apart from who is not there.
func TestTLS(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"tables":[{"name":"t"}]}`)
	})
	plain := httptest.NewServer(answer)
	t.Cleanup(plain.Close)
	start := func(auth tls.ClientAuthType) *httptest.Server {
		s := httptest.NewUnstartedServer(answer)
		s.TLS = &tls.Config{ClientAuth: auth, ClientCAs: x509.NewCertPool()}
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	open, closed := start(tls.NoClientCert), start(tls.RequireAndVerifyClientCert)
	trust := x509.NewCertPool()
	trust.AddCert(open.Certificate())
	mine := open.TLS.Certificates[:1] // of a CA that the servers do not trust for clients
	tests := []struct {
		name     string
		endpoint string
		config   *tls.Config
		want     string // in the error, "" for none
	}{
		{"trusted", open.URL, &tls.Config{RootCAs: trust}, ""},
		{"unknown authority", open.URL, &tls.Config{RootCAs: x509.NewCertPool()}, "unknown authority"},
		{"wrong name", open.URL, &tls.Config{RootCAs: trust, ServerName: "other"}, "other"},
		{"no client certificate", closed.URL, &tls.Config{RootCAs: trust}, "refused this client's certificate"},
		{"refused client certificate", closed.URL, &tls.Config{RootCAs: trust, Certificates: mine}, "refused this client's certificate"},
		{"not TLS", strings.Replace(plain.URL, "http:", "https:", 1), &tls.Config{RootCAs: trust}, "HTTP response to HTTPS client"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := client.New(client.Options{Endpoints: []string{tt.endpoint}, TLS: tt.config, Timeout: 3 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			_, err = c.Tables(t.Context())
			_, putErr := c.Put(t.Context(), "t", "k", nil, client.WriteOptions{})
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, err := range []error{err, putErr} { // a write is not in doubt either
				if !errors.Is(err, client.ErrTLS) || !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want one of TLS with %q", err, tt.want)
				}
			}
		})
	}
}
