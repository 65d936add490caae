package node

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/config"
)

// Options are what a node needs of the world outside.
type Options struct {
	Config  config.Config
	Version string // of the release, as peers and users see it
	Log     *slog.Logger
	Listen  func(ctx context.Context, network, address string) (net.Listener, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// Disk holds the node's files, but for the lock of the directory; nil: the real
	// one.
	Disk vfs.FS
	// Lock is the locked data directory of the incarnation before, if this process
	// became the node by a restart in place; else nil.
	Lock *os.File
	// Check finds out whether what would run after a restart in place can: its
	// error is shown to who orders one. Nil: this node cannot be restarted in
	// place.
	Check func(ctx context.Context) error
	// Notice is told what a supervisor wants to know; nil: nobody is.
	Notice func(Notice)
	// Reload makes the node look at the files of its certificates now, and not only
	// every few seconds; nil: nobody asks for it this way.
	Reload <-chan os.Signal
	Faults Faults
	Limits Limits
}

// Limits bound what a node does for replicas that are behind, and how long it may
// stand still. Zero means the default.
type Limits struct {
	LogBytes     int64 // that one table's log keeps for a replica that lacks it; 64 MiB
	NodeLogBytes int64 // of all logs together; 1 GiB
	SnapshotRate int64 // bytes a second that a node sends of snapshots; 64 MiB

	StallAfter time.Duration // without a turn of the raft loop, the node says that it is stalled; 1 s
	StallEnd   time.Duration // and then it ends; 30 s
}

// Notice is something that a supervisor of the process wants to know.
type Notice uint8

// The notices.
const (
	NoticeReady      Notice = iota + 1 // the node has its lease and takes requests
	NoticeStopping                     // it stops
	NoticeRestarting                   // it restarts in place; another NoticeReady follows
)

// Faults are ways to break a node on purpose. Each reproduces a defect that its
// test must catch; a released binary has no way to set them.
type Faults struct {
	ListenDelay       time.Duration // between opening storage and listening
	LeaseBeforeListen bool          // publish the lease before anything listens
	NoPatience        bool          // answer the first routing error
	HandOverHold      time.Duration // keep a table without an owner for so long at each hand-over
	AdvertiseMember   bool          // put the member list's address into the lease
	NoAddressProof    bool          // grant leases without dialling their address
	NeverQuiet        bool          // tick all groups, always
	CertsCut          bool          // close connections at once when certificates change
	NoFrontier        bool          // what leaders say of how far they are makes no replica level
	NoRequestIDs      bool          // forget at once which writes were done
	StaleReads        bool          // answer reads without asking whether the table is still owned
	AckBeforeSync     bool          // acknowledge what the disk does not have yet

	// Times after which a silent or stalled node counts as dead, and one that crashed is
	// given tables again, for machines that cannot keep to the defaults; 0: those.
	SuspectAfter, StallAfter, ReturnAfter time.Duration
}
