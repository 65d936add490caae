package node

import (
	"context"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"tidal/node/api"
	"tidal/node/internal/peer"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

// stagingFolder holds, inside the data directory, the snapshots that arrive.
// What is in it at the start is of no use to anybody.
const stagingFolder = "staging"

// buildSnapshots makes what sends and takes snapshots.
func (n *node) buildSnapshots() (err error) {
	n.outbox = rafthost.NewOutbox(rafthost.OutboxOptions{
		DB: n.db, Rate: n.o.Limits.SnapshotRate, Log: n.log,
		Carrier: func(ctx context.Context, to string, next func() ([]byte, error)) error {
			return n.net.Ship(ctx, to, next)
		},
	})
	n.receiver, err = rafthost.NewReceiver(rafthost.ReceiverOptions{
		DB: n.db, Dir: filepath.Join(n.o.Config.Node.Data, stagingFolder), Log: n.log,
		Room: n.space.room,
	})
	return err
}

// receiveSnapshot takes a snapshot that a peer sends.
func (n *node) receiveSnapshot(ctx context.Context, from wire.Hello, in *peer.Inbound) error {
	node := from.Incarnation.Node
	if from.ClusterID.IsZero() || !n.cluster.Formed() {
		return &api.Error{Code: api.CodeForbidden, Message: "node " + node + " or this one does not belong to a cluster yet"}
	}
	return n.receiver.Receive(ctx, node, n.host, in.Next, in.Ready)
}

// snapshotMeters are the metrics of snapshots that come and go.
func snapshotMeters(n *node) []prometheus.Collector {
	counter := func(name, help string, f func() uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(f()) })
	}
	sent := func(which int) func() uint64 {
		return func() uint64 {
			taken, failed, bytes := n.outbox.Sent()
			return [...]uint64{taken, failed, bytes}[which]
		}
	}
	return []prometheus.Collector{
		counter("tidal_snapshots_sent_total", "Snapshots that this node sent and a replica took.", sent(0)),
		counter("tidal_snapshots_failed_total", "Snapshots that this node had to send and no replica took.", sent(1)),
		counter("tidal_snapshot_sent_bytes_total", "Bytes of snapshots that this node sent.", sent(2)),
		counter("tidal_snapshots_received_total", "Snapshots that became the state of replicas here.", n.receiver.Taken),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidal_snapshots_waiting", Help: "Snapshots that this node sends, or that wait for their turn.",
		}, func() float64 { return float64(n.outbox.Waiting()) }),
	}
}
