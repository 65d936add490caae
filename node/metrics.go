package node

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/router"
	"tidal/node/internal/server"
)

// meters are a node's metrics. docs/metrics.md has each; a test compares the two.
type meters struct {
	registry  *prometheus.Registry
	answers   *prometheus.CounterVec
	requests  *prometheus.HistogramVec
	refused   *prometheus.CounterVec
	leaders   prometheus.Counter
	events    *prometheus.CounterVec
	differ    prometheus.Counter
	longest   atomic.Int64 // nanoseconds, of a request that entered here
	durations map[api.Op]prometheus.Observer
}

func newMeters(n *node) *meters {
	m := &meters{
		registry: prometheus.NewRegistry(),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidal_http_requests_total", Help: "HTTP requests answered, by route, method and status.",
		}, []string{"route", "method", "status"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidal_request_duration_seconds", Help: "Time of row requests that entered here, waiting for an owner included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"op"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidal_requests_refused_total", Help: "Row requests that entered here and were refused, by code: those that planned change must never cause.",
		}, []string{"code"}),
		leaders: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_raft_leader_changes_total", Help: "Times that a group here got to know another leader.",
		}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidal_events_total", Help: "Events that this node told, by kind.",
		}, []string{"kind"}),
		differ: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_replicas_differ_total", Help: "Replicas that comparisons begun at this node found to differ.",
		}),
		durations: map[api.Op]prometheus.Observer{},
	}
	for _, op := range api.Ops() {
		m.durations[op] = m.requests.WithLabelValues(op.String())
	}
	for _, code := range refusals() {
		m.refused.WithLabelValues(string(code))
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	m.registry.MustRegister(
		m.answers, m.requests, m.refused, m.leaders, m.events, m.differ,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("tidal_ready", "1 if the node answers 200 on /health.", func() float64 { return truth(len(n.reasons()) == 0) }),
		gauge("tidal_draining", "1 while the node hands over what it owns.", func() float64 { return truth(n.cluster.Draining()) }),
		gauge("tidal_drain_claimed", "1 while somebody's claim keeps the node from owning tables.", func() float64 { return truth(n.cluster.Claim() != nil) }),
		gauge("tidal_connections", "Open connections of clients and operators.", func() float64 { return float64(n.server.Connections()) }),
		gauge("tidal_body_bytes", "Bytes of the bodies that clients send or read now.", func() float64 { return float64(n.server.Bodies()) }),
		gauge("tidal_tables", "Replicas of tables on this node.", func() float64 { return float64(n.tables.Len()) }),
		gauge("tidal_tables_owned", "Tables that this node owns.", func() float64 { return float64(n.cluster.Owned()) }),
		gauge("tidal_leases", "Live leases in the cluster, as this node sees it.", func() float64 { return float64(len(n.cluster.View().Leases)) }),
		gauge("tidal_waiting_bytes", "Bytes of the requests that wait here for an owner.", func() float64 { return float64(n.router.Waiting()) }),
		gauge("tidal_request_longest_seconds", "Longest time of a row request that entered here since the node started.",
			func() float64 { return time.Duration(m.longest.Load()).Seconds() }),
		gauge("tidal_raft_log_bytes", "Bytes that the logs of all groups take on the disk, roughly.", func() float64 { return float64(n.host.LogBytes()) }),
		gauge("tidal_raft_groups_awake", "Raft groups on this node that are not quiet.", func() float64 { return float64(n.host.Awake()) }),
		gauge("tidal_disk_load", "How far the database is behind its disk: 0 not, 1 no more writes are taken, 2 the raft loop waits.",
			func() float64 { return float64(n.db.Load()) }),
		gauge("tidal_raft_stalled_seconds", "How long the raft loop has stood still; 0 while it turns.", func() float64 {
			if still, stalled := n.dog.Still(); stalled {
				return still.Seconds()
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidal_raft_stalls_total", Help: "Times that the raft loop stood still for longer than it may."},
			func() float64 { return float64(n.dog.count.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidal_raft_passes_total", Help: "Passes of the raft loop."},
			func() float64 { return float64(n.host.Passes()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidal_build_info", Help: "1, with the release as a label.",
			ConstLabels: prometheus.Labels{"version": n.o.Version},
		}, func() float64 { return 1 }),
	)
	m.registry.MustRegister(snapshotMeters(n)...)
	m.registry.MustRegister(tableMeters(n)...)
	m.registry.MustRegister(newCertMeters(n))
	m.registry.MustRegister(spaceMeters(n)...)
	return m
}

// refusals are the codes that count as refused for a roll's gate.
func refusals() []api.Code {
	return []api.Code{
		api.CodeStaleOwner, api.CodeNoOwner, api.CodeOwnerUnreachable, api.CodeOutcomeUnknown, api.CodeBehind,
		api.CodeTooMany, api.CodeNotReady, api.CodeDiskFull,
	}
}

// truth is a condition as a gauge's value.
func truth(b bool) float64 { //nolint:revive // the flag is the value
	if b {
		return 1
	}
	return 0
}

func (m *meters) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// request counts a row request that entered here.
func (m *meters) request(e router.Event) {
	if o := m.durations[e.Op]; o != nil {
		o.Observe(e.Took.Seconds())
	}
	for old := m.longest.Load(); int64(e.Took) > old && !m.longest.CompareAndSwap(old, int64(e.Took)); {
		old = m.longest.Load()
	}
	if slices.Contains(refusals(), e.Code) {
		m.refused.WithLabelValues(string(e.Code)).Inc()
	}
}

// answer counts an HTTP request.
func (m *meters) answer(e server.Event) {
	m.answers.WithLabelValues(e.Route, e.Method, strconv.Itoa(e.Status)).Inc()
}

// group counts what happens in groups.
func (m *meters) group(e rafthost.Event) {
	if e.State.Lead != 0 && e.State.Lead != e.Was.Lead {
		m.leaders.Inc()
	}
}
