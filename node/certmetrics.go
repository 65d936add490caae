package node

import (
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidal/pki"
)

// certMeters are the metrics of certificates; none in a plaintext cluster. Their
// labels change with the files, so they are made when they are asked for.
type certMeters struct {
	n                                      *node
	ends, taken, failed, since, good, peer *prometheus.Desc
}

func newCertMeters(n *node) *certMeters {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &certMeters{
		n:      n,
		ends:   d("tidal_cert_not_after_timestamp_seconds", "When a certificate that the node uses ends: its own, their issuer's, and the roots that it trusts.", "kind", "serial"),
		taken:  d("tidal_cert_reloads_total", "Sets of certificate files that came into use, the one at the start included."),
		failed: d("tidal_cert_reload_failures_total", "Looks at certificate files that could not be used."),
		since:  d("tidal_cert_reload_success_timestamp_seconds", "When the certificates in use were taken from their files."),
		good:   d("tidal_cert_files_good", "1 if what the certificate files hold is in use, 0 if they cannot be used."),
		peer:   d("tidal_cert_peer_not_after_timestamp_seconds", "When the first certificate ends that somebody connected has shown; absent without one."),
	}
}

// Describe implements prometheus.Collector.
func (m *certMeters) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.ends, m.taken, m.failed, m.since, m.good, m.peer} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *certMeters) Collect(out chan<- prometheus.Metric) {
	k := m.n.keys
	if k == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	seen := map[string]bool{}
	end := func(kind string, c *x509.Certificate) {
		if key := kind + pki.Serial(c); !seen[key] {
			seen[key] = true
			gauge(m.ends, seconds(c.NotAfter), kind, pki.Serial(c))
		}
	}
	for i, c := range k.Chain() {
		kind := "leaf"
		if i > 0 {
			kind = "issuer"
		}
		end(kind, c)
	}
	for _, c := range k.Roots() {
		end("root", c)
	}
	loads := k.Loads()
	out <- prometheus.MustNewConstMetric(m.taken, prometheus.CounterValue, float64(loads.Taken))
	out <- prometheus.MustNewConstMetric(m.failed, prometheus.CounterValue, float64(loads.Failed))
	gauge(m.since, seconds(loads.Since))
	gauge(m.good, truth(loads.Problem == nil))
	var first time.Time
	for _, c := range m.n.certConns() {
		if !c.NotAfter.IsZero() && (first.IsZero() || c.NotAfter.Before(first)) {
			first = c.NotAfter
		}
	}
	if !first.IsZero() {
		gauge(m.peer, seconds(first))
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
