package rafthost

import (
	"errors"
	"sync/atomic"
	"time"

	"tidal/node/internal/store"
)

// What ends a proposal, a read or a transfer that did not succeed.
var (
	// ErrNotLeader: this replica does not lead its group; nothing was done.
	ErrNotLeader = errors.New("this replica does not lead its group")
	// ErrUnknown: raft accepted the proposal, and this replica lost the group
	// before it saw what became of it.
	ErrUnknown = errors.New("the group was lost while the proposal was under way")
	// ErrBusy: a bound of the host is reached; nothing was done.
	ErrBusy = errors.New("the node has too much under way")
	// ErrSlowDisk: the database falls behind its disk; nothing was done.
	ErrSlowDisk = errors.New("the disk does not keep up")
	// ErrNoGroup: the node holds no replica of the group; nothing was done.
	ErrNoGroup = errors.New("no replica of the group is here")
	// ErrTransfer: the target did not take the group over in time.
	ErrTransfer = errors.New("the target did not take the group over")
	// ErrStopped: the host has ended; nothing was done.
	ErrStopped = errors.New("the node is stopping")
)

// Entry is a committed entry as a state machine sees it.
type Entry struct {
	Index, Term uint64
	// Elapsed is how long after its previous entry the leader proposed this one,
	// by the leader's monotonic clock, in whole milliseconds; 0 for the first of
	// a term. Its sum is a clock on which all replicas agree.
	Elapsed time.Duration
	Data    []byte // empty: raft's own entry at the start of a term
}

// Machine is a group's state machine. It is deterministic, and called by the
// loop alone.
type Machine interface {
	// Apply writes an entry's effect into b, together with nothing else, and
	// returns the id of the proposal that it answers and the answer. An error
	// means that the replica cannot go on: the node stops.
	Apply(b *store.Batch, e Entry) (id [16]byte, answer any, err error)
	// Flush writes into b what the calls of Apply since the last Flush left to be
	// written once for all of them. It is called for the same b.
	Flush(b *store.Batch)
	// Committed is called when the batch of earlier calls is in the database.
	Committed()
}

// Cutter is a Machine that may want to look at the database as an entry left it.
type Cutter interface {
	// Cut reports, after each Apply, whether nothing that comes after that entry may
	// be in the database when Committed is called next. It is called by the loop.
	Cut() bool
}

// Arriving becomes the machine of a replica when a snapshot takes the place of all
// that it had. It is filled while the snapshot comes, outside the loop, so that the
// loop need not read what may be hundreds of megabytes.
type Arriving interface {
	// Add takes a pair of the machine's state; the key begins with its keyspace. Both
	// are the caller's.
	Add(key, value []byte) error
	// Done is called once all pairs were added.
	Done() error
	// Machine returns the machine of what was added, which is in the database now. It
	// is called by the loop, at most once.
	Machine() (Machine, error)
}

// GroupOptions describe a replica that the node holds.
type GroupOptions struct {
	Group   uint64
	Replica uint64            // raft id of the replica here
	Nodes   map[uint64]string // node of each replica of the group
	Machine Machine
	// Arrive returns what a snapshot that begins to come is given to. It is called by
	// the loop, and must not wait. nil: the replica takes no snapshots.
	Arrive func() Arriving
	// Voters is the first configuration, and First may write the machine's first
	// state; they are used only when the disk has no replica yet.
	Voters []uint64
	First  func(b *store.Batch)
	Gauge  *Gauge // may be nil
	// Vital groups take entries also while the disk is crowded: they are few, and
	// the node is of no use without them.
	Vital bool
	// Restless keeps the group from being quiet, and has its followers told of
	// each commit at once instead of with the next heartbeat.
	Restless bool
}

// Gauge shows how far a replica is to readers outside the loop. It is written
// after what it tells has come true.
type Gauge struct {
	Commit, Applied atomic.Uint64 // raft indexes
	// Frontier is the highest commit index that a leader has told this follower of:
	// above Commit if it lacks entries, or was not told yet that it has them all.
	Frontier atomic.Uint64
	// Moved is when Applied last moved, in nanoseconds of Options.Clock; 0: not since
	// the replica was opened.
	Moved atomic.Int64
}

// Event tells what changed in a group. Events come in order, from the loop.
type Event struct {
	Group      uint64
	Was, State State
}

// State is what a replica knows of its group.
type State struct {
	Replica uint64
	Term    uint64
	Lead    uint64 // replica that leads, 0 while none is known
	Leads   bool
	Owns    bool // leads, and has applied an entry of its own term
}

// Progress is a snapshot of a replica, for status and for choosing targets.
type Progress struct {
	State

	Commit, Applied, Last uint64
	Conf                  Conf
	Peers                 []Peer // of a leader: the other replicas
}

// Peer is what a leader knows of another replica.
type Peer struct {
	Replica uint64
	Node    string
	Voter   bool
	Match   uint64
	Active  bool // has answered within the last election timeout
}

// Sender takes a batch of raft messages for a node. It must not block; what it
// cannot take it drops.
type Sender interface {
	Send(node string, batch []byte)
}

// Defect breaks the host on purpose, in a way that a test must find. The zero
// value is the host as it should be.
type Defect uint8

// The defects.
const (
	Sound                Defect = iota
	AckBeforeSync               // answers to peers leave before the disk has what they promise
	VoteNotPersisted            // a vote is not written
	CommitNotWithRows           // the stored commit does not move with the applied rows
	AckBeforeIngest             // the leader is told of a snapshot before it is ingested
	VoteNotInIngest             // an ingest overwrites the vote
	CutAboveApplied             // a log is cut above what is applied
	LossySnapshot               // a snapshot lacks a keyspace: that of the request ids
	CommitNotCapped             // a heartbeat's commit is the leader's, whatever the follower has
	QuietWithoutLeader          // a replica that knows no leader is quiet
	IncarnationNoDeath          // a node that comes back has not been away
	NoWordToReturning           // a new connection begins without a word about the groups
	CampaignOnly                // who misses a leader stands for election and does not forget it
	TimeoutNowFromAnyone        // an election without a pre-vote, by whoever wants one
	StaleAppended               // a deposed leader says of what it has appended that nothing was done
	DeadFrames                  // what a node sent before it was declared dead is heard
	ConfNotWithRows             // the configuration is stored with the apply after the one that changed it
	VotersAtOnce                // several voters change at once, and not through a joint configuration
)

// Options of a Stepper.
type Options struct {
	DB     *store.DB
	Sender Sender
	Events func(Event) // called from Pass
	// Clock is what Gauge.Moved is read from; nil: when the pass began.
	Clock func() time.Duration

	// Memo adds to a batch what this node remembers of other nodes, before the batch
	// rests on it; nil: nothing. It is called by the loop.
	Memo func(b *store.Batch)

	// Shipper carries snapshots; nil: none are sent.
	Shipper Shipper
	// LogBytes bounds what a group's log keeps on the disk for a replica that lacks
	// it, in bytes; 0: 64 MiB. NodeLogBytes bounds all logs together; 0: 1 GiB.
	LogBytes, NodeLogBytes int64

	// ElectionTicks is how many ticks without a leader make a follower stand for
	// election; 0: 10. A tick is 100 ms in production.
	ElectionTicks int
	// Stagger is the time between two replicas of a group that stand for election
	// when their leader is dead; 0: 50 ms. Prefer says whom a group prefers: who has
	// the highest number stands first. nil: the lowest replica.
	Stagger time.Duration
	Prefer  func(group uint64, node string) uint64
	// LogCache bounds the log tails in memory, in bytes; 0: 64 MiB.
	LogCache int
	Restless bool // no group is ever quiet: for measuring what that costs
	Defect   Defect
}

// Limits of a group.
const (
	maxMessage     = 128 << 10 // bytes of entries in one append message
	maxCommitted   = 4 << 20   // bytes of entries applied in one pass
	maxUncommitted = 16 << 20  // bytes that a leader has appended and not committed
	maxInflight    = 4 << 20   // bytes sent to a follower and not answered
	maxInflightN   = 256       // messages, likewise
	maxQueued      = 16 << 20  // bytes of proposals that wait for raft
	maxPass        = 8 << 20   // bytes of entries in one pass, and what the last group in it has
	entryHeader    = 1         // version of an entry's header
)
