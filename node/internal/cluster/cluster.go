package cluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/ready"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// Default times of leases.
const (
	leaseTTL    = 3 * time.Second        // a lease that is not renewed for so long is dead
	leaseSkew   = 500 * time.Millisecond // more, for messages on their way
	leaseRenew  = time.Second            // how often a lease is renewed
	moveRest    = 10 * time.Second       // least time between two hand-overs of one table by one node
	returnAfter = time.Minute            // how long a node is back that crashed before it is given tables
	drainRest   = 500 * time.Millisecond // while it drains: two nodes that do must not play ball with a table
)

// Net reaches other nodes.
type Net interface {
	Call(ctx context.Context, node string, method wire.Method, payload []byte) ([]byte, error)
	CallAddress(ctx context.Context, url string, method wire.Method, payload []byte) (wire.Hello, []byte, error)
	SetPeers(addresses map[string]string)
	Nudge()
	Heard(node string) (api.Incarnation, time.Time)
	// Refusal returns why a peer that is reached and this node do not talk, or nil.
	Refusal(node string) *api.Error
}

// Tables are the replicas of tables on this node.
type Tables interface {
	Open(ctx context.Context, info *wire.Table) error
	Update(info *wire.Table) error
	Drop(ctx context.Context, id api.TableID) error
	HandOver(ctx context.Context, id api.TableID, node string) error
	Local(id api.TableID) (Replica, bool)
	All() []Replica
}

// Replica is what this node's replica of a table knows.
type Replica struct {
	Name            string
	ID              api.TableID
	State           rafthost.State
	Leader          string // node that leads, as far as the replica knows
	Commit, Applied uint64
	Frontier        uint64        // highest commit that a leader has told this replica of
	Moved           time.Duration // when Applied last moved, on the host's clock
}

// Options are what a Cluster is made of.
type Options struct {
	Node      string            // own id
	Name      string            // of the cluster
	Members   map[string]string // the configured list: node to URL
	Join      []string          // URLs of members of a running cluster, to be admitted to it
	Advertise string            // own URL
	Zone      string
	Version   string // of the release
	Levels    api.Levels
	Identity  Identity
	DB        *store.DB
	Host      *rafthost.Host
	Tables    Tables
	Net       Net
	Log       *slog.Logger
	// Receiving returns which part of a group's snapshot is here, from 0 to 1, and
	// whether one is on its way; nil: never.
	Receiving func(group uint64) (float64, bool)

	// Positions calls f for each replica on this node, in the order of the tables' ids.
	Positions func(f func(Position))

	// Leveled is told the cluster's feature level, when the meta group is opened and
	// when it has changed. After an error it is told again.
	Leveled func(level uint64) error

	// Spent reports whether this node remembers as many answers to writes as it may, of
	// a lifetime: keyed, or made; nil: it never does.
	Spent func(keyed bool) bool

	// Unsound returns the tables whose replicas here are fenced; nil: none ever is.
	Unsound func() []api.TableID

	// Events takes what changes in the cluster; nil: nobody does. It must not wait.
	Events func(api.Event)
	// SuspectAfter is how long a node may say nothing, and StallAfter how long its
	// loop may stand still, before it counts as dead; 0: 300 ms and 1 s.
	SuspectAfter, StallAfter time.Duration
	// ReturnAfter is how long a node must be back that went without a word before it
	// is given tables; 0: 60 s.
	ReturnAfter time.Duration

	AdvertiseMember bool // faults for tests: see node.Faults
	NoAddressProof  bool
	NoFrontier      bool
	PartVoters      bool // a cluster that forms without some members has the others alone as voters
	UnsetFrontier   bool
	AdmitOlder      bool
}

// Cluster is this node's membership. Its methods may be called from any
// goroutine.
type Cluster struct {
	o       Options
	formed  chan struct{} // closed once the node belongs to a cluster
	ready   chan struct{} // closed once the meta group is open
	view    atomic.Pointer[meta.View]
	roster  atomic.Pointer[wire.Roster] // the newest that a member told; nil: none
	metaNow atomic.Pointer[rafthost.State]
	gauge   rafthost.Gauge // of the meta group
	changed signal
	drain   atomic.Bool         // this node stops, or a claim on its drain lasts
	left    atomic.Bool         // the lease is withdrawn: there will be no other
	gone    chan struct{}       // closed when left is set
	claims  claims              // of operators, on the drain
	exits   chan struct{}       // capacity 1: held while a node is let go
	asked   asked               // who asks to be let go, at the meta leader
	rolls   heardRolls          // when the holder of the roll's lock was heard, at the meta leader
	room    room                // whose disks are full
	burdens said[burden]        // who remembers as many answers as it may
	unsound said[[]api.TableID] // whose replicas of which tables are fenced

	leveled uint64 // that Leveled was told; Open's, and then keep's own

	shown []wire.Member // of which the host knows where the meta replicas are; keep's own

	directory directory
	pulses    pulses // of the other nodes
	memory    memory // of how far the others' disks have come
	refusals  refusals
	fenced    atomic.Pointer[api.Error] // why this node takes no part any more; nil: it does
	leases    leases                    // of the leader: when they were renewed
	placed    placements
	gathered  gatherings
	pictures  pictures
	withdrawn withdrawn
	stays     stays // tables that operators handed over
	loads     loads
	// reconciled is the view whose tables are open, for whoever keeps them: Open,
	// and then Run.
	reconciled *meta.View

	mu struct {
		sync.Mutex
		formation *wire.Formation   // nil until the node belongs to a cluster
		replica   uint64            // raft id of the replica of the meta group, if it was admitted later; else 0
		waiting   string            // why it does not, for people
		untold    map[string]string // why founders have not taken the list, for people
		said      time.Time         // when one of these was last logged
		lease     leaseState
		meta      ready.Latch
		level     map[api.TableID]*ready.Latch
		unlevel   map[api.TableID]bool          // those of them that are not set
		wasLevel  bool                          // all replicas were level once in this run
		moved     map[api.TableID]time.Time     // when this node last handed a table over
		tried     map[string]attempt            // which address of a peer is being tried
		returned  map[api.Incarnation]time.Time // since when nodes are back that went without a word
	}
}

// leaseState is what this node knows of its own lease.
type leaseState struct {
	granted bool
	why     string // not
}

// New returns a Cluster that does nothing until Run.
func New(o Options) *Cluster {
	c := &Cluster{o: o, formed: make(chan struct{}), ready: make(chan struct{}), exits: make(chan struct{}, 1), gone: make(chan struct{})}
	c.view.Store(&meta.View{})
	c.metaNow.Store(&rafthost.State{})
	c.changed.ch = make(chan struct{})
	c.directory.init()
	c.gathered.init()
	c.pulses.suspect, c.pulses.stall = suspectAfter, stallAfter
	if o.SuspectAfter > 0 {
		c.pulses.suspect = o.SuspectAfter
	}
	if c.o.ReturnAfter == 0 {
		c.o.ReturnAfter = returnAfter
	}
	if o.StallAfter > 0 {
		c.pulses.stall = o.StallAfter
	}
	c.pulses.host, c.pulses.mu.of = o.Host, map[string]*pulse{}
	c.memory.init()
	c.stays.of = map[api.TableID]stay{}
	c.refusals.init()
	c.mu.level = map[api.TableID]*ready.Latch{}
	c.mu.unlevel = map[api.TableID]bool{}
	c.mu.moved = map[api.TableID]time.Time{}
	c.mu.tried = map[string]attempt{}
	c.mu.untold = map[string]string{}
	c.mu.lease.why = "it was not asked for yet"
	if c.o.Levels == (api.Levels{}) {
		c.o.Levels = wire.Levels()
	}
	if c.o.Leveled == nil {
		c.o.Leveled = func(uint64) error { return nil }
	}
	if c.o.Events == nil {
		c.o.Events = func(api.Event) {}
	}
	if c.o.Spent == nil {
		c.o.Spent = func(bool) bool { return false }
	}
	if c.o.Unsound == nil {
		c.o.Unsound = func() []api.TableID { return nil }
	}
	if c.o.Receiving == nil {
		c.o.Receiving = func(uint64) (float64, bool) { return 0, false }
	}
	if f := o.Identity.Formation; f != nil {
		c.mu.formation, c.mu.replica = f, o.Identity.Replica
		close(c.formed)
	}
	return c
}

// Changed returns a channel that is closed at the next change of tables, leases
// or ownership.
func (c *Cluster) Changed() <-chan struct{} { return c.changed.wait() }

// View returns the meta group's state as it is here now.
func (c *Cluster) View() *meta.View { return c.view.Load() }

// ID returns the cluster's id, zero before the node belongs to one.
func (c *Cluster) ID() api.ClusterID {
	if f := c.formation(); f != nil {
		return f.ClusterID
	}
	return api.ClusterID{}
}

// Formed reports whether the node belongs to a cluster.
func (c *Cluster) Formed() bool { return c.formation() != nil }

func (c *Cluster) formation() *wire.Formation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.formation
}

// metaLeader returns the node that leads the meta group, as far as known here.
func (c *Cluster) metaLeader() string {
	return c.metaNode(c.metaNow.Load().Lead)
}

func (c *Cluster) metaNode(replica uint64) string {
	if replica == 0 {
		return ""
	}
	for _, m := range c.members() {
		if m.Replica == replica {
			return m.Node
		}
	}
	return ""
}

// leadsMeta reports whether this node decides about leases and tables now.
func (c *Cluster) leadsMeta() bool { return c.metaNow.Load().Owns }

// signal wakes all who wait for the next change.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}

// sleep waits for d, for a change that comes before, or for the end of ctx, and
// reports whether ctx has ended.
func (c *Cluster) sleep(ctx context.Context, d time.Duration, change <-chan struct{}) (ended bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-change:
	case <-ctx.Done():
	}
	return ctx.Err() != nil
}
