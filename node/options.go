package node

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/config"
)

// Options are what a node needs of the world outside.
type Options struct {
	Config  config.Config
	Version string // of the release, as peers and users see it
	// Levels are the feature levels that this node speaks; zero: those of the release.
	Levels api.Levels
	Log    *slog.Logger
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	// Disk holds the node's files, but for the lock of the directory; nil: the real
	// one.
	Disk vfs.FS
	// Lock is the locked data directory of the incarnation before, if this process
	// became the node by a restart in place; else nil.
	Lock *os.File
	// Program is what runs after a restart in place. Nil: this node cannot be
	// restarted in place.
	Program Program
	// Notice is told what a supervisor wants to know; nil: nobody is.
	Notice func(Notice)
	// Reload makes the node look at the files of its certificates now, and not only
	// every few seconds; nil: nobody asks for it this way.
	Reload <-chan os.Signal
	Faults Faults
	Limits Limits
}

// Program is the binary that this node is, and others that could take its place. They
// are named by the SHA-256 of their files. Errors are *api.Error where whoever asked
// can do something about it.
type Program interface {
	// Check finds out whether a binary that is here can run this node, and says what
	// it is; "" is the one at the node's path. Its error is shown to who orders a
	// restart.
	Check(ctx context.Context, sha256 string) (api.Program, error)
	// Prepare does all that can fail of Install. Done again, it only looks whether
	// everything is still there. Of "" it looks whether the binary at the node's path is
	// the one that Check found.
	Prepare(sha256, checked string) error
	// Install puts a prepared binary in the place of the one at the node's path, which
	// is kept. A restart runs it then, and so does who starts the process anew. Of "" it
	// does nothing.
	Install(sha256 string) error
	// Stage takes a binary in, and checks it.
	Stage(ctx context.Context, sha256 string, content io.Reader) (api.Program, error)
	// List says which binaries are here.
	List(ctx context.Context) (api.Programs, error)
}

// Limits bound what a node does for replicas that are behind, and how long it may
// stand still. Zero means the default.
type Limits struct {
	LogBytes     int64 // that one table's log keeps for a replica that lacks it; 64 MiB
	NodeLogBytes int64 // of all logs together; 1 GiB
	SnapshotRate int64 // bytes a second that a node sends of snapshots; 64 MiB

	CompareEvery time.Duration // how often the replicas of a table are compared; 1 h

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
	UnsetFrontier     bool          // a replica is level though nobody has said how far its leader is
	AnyTarget         bool          // hand tables over to replicas that are behind
	AdmitOlder        bool          // let a disk in that is older than it was
	FlipValues        bool          // store other values than those that were written

	// Times after which a silent or stalled node counts as dead, and one that crashed is
	// given tables again, for machines that cannot keep to the defaults; 0: those.
	SuspectAfter, StallAfter, ReturnAfter time.Duration
}
