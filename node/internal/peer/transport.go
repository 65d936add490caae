package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

var (
	// ErrUnreachable says that nothing of a call was delivered: there is no
	// connection, it was refused, or the other side refused the hello.
	ErrUnreachable = errors.New("unreachable")
	// ErrBroken says that a call was sent, and that no answer will come.
	ErrBroken = errors.New("broken off before the answer")
	// ErrRefused says that nothing listens at the peer's address: its host is up
	// and its process is not.
	ErrRefused = errors.New("nothing listens there")

	errStopped = errors.New("this node is stopping")
	errRemoved = errors.New("no longer a peer")
	errMoved   = errors.New("its address changed")
	errOlder   = errors.New("a newer incarnation said hello")

	errStranger = errors.New("it belongs to no cluster yet")

	errFenced      = errors.New("this node takes no part in the cluster")
	errCertificate = errors.New("it refuses this node's certificate")
)

const (
	dialTimeout      = 2 * time.Second        // to connect
	handshakeTimeout = 5 * time.Second        // from connecting, or accepting, to the verdicts
	maxHandshakes    = 64                     // inbound, at once
	maxQueue         = 16 << 20               // bytes waiting to be written to a connection
	maxCalls         = 4096                   // in flight on an inbound connection
	sayRefused       = time.Minute            // how often the log repeats why a connection is refused
	maxRefused       = 64                     // reasons that are remembered for that
	defaultInterval  = 100 * time.Millisecond // of heartbeats
)

// Handler is what a Transport gives arrivals to. Its methods are called from many
// goroutines at once; those of one connection come in order, after its Up.
type Handler interface {
	// Raft gets a batch of raft messages. The buffer is the receiver's for ever.
	Raft(from api.Incarnation, frame []byte)
	// Heartbeat gets a heartbeat, which is the receiver's too.
	Heartbeat(from api.Incarnation, hb *wire.Heartbeat)
	// Call answers a call. ctx ends at the caller's deadline, and with a cause when
	// the connection breaks. An *api.Error travels as itself, another error as an
	// internal one without its cause. The payload and the result pass to their
	// receivers.
	Call(ctx context.Context, from wire.Hello, method wire.Method, payload []byte) ([]byte, error)
	// Up says that a raft connection with this incarnation stands, in either
	// direction.
	Up(remote wire.Hello)
	// Down says that the outbound raft connection to an incarnation ended. It comes
	// after the first attempt to dial again, whether that went well or not (then Up
	// follows), and a second time if nothing was known to refuse at first and a
	// later attempt finds that nothing listens: why wraps ErrRefused then.
	Down(node string, inc api.Incarnation, why error)
}

// Options are what a Transport needs. Node, Hello, Admit, Dial, Beat, Handler
// and Log are required.
type Options struct {
	Node string // own id

	// Hello is asked at each handshake for what this node says of itself. Its Kind
	// is filled in, and its protocol versions if Max is 0.
	Hello func(kind wire.ConnKind) wire.Hello
	// Admit may refuse a remote's hello. It is asked on both sides, after the
	// remote's certificate was checked, and before anything else is read.
	Admit func(remote wire.Hello) error
	// Refused is told of each remote that this node refuses, and why; nil: nobody is.
	Refused func(remote wire.Hello, why *api.Error)
	// Fenced is told once if a member says that this node's disk is not the one that
	// it was: from then on the transport talks to nobody. nil: nobody is told.
	Fenced func(by api.Incarnation, why *api.Error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS returns the configuration to dial a node with, or any node of the cluster
	// if the id is empty. A nil func means plaintext.
	TLS func(node string) *tls.Config
	// Names returns an error unless the verified certificate of the other side
	// names the node. A nil func means plaintext.
	Names func(cs *tls.ConnectionState, node string) error
	// Beat returns what to tell a peer now, or nil for nothing: all if full is set,
	// on the first of each connection, else what changed since the last call for
	// that peer. Calls for one peer never overlap. Seq is filled in.
	Beat    func(peer string, full bool) *wire.Heartbeat
	Handler Handler
	// Snapshot takes a snapshot that a peer sends, and returns nil once all of it is
	// here to stay. ctx ends with the connection. nil: this node takes none.
	Snapshot        func(ctx context.Context, from wire.Hello, in *Inbound) error
	SnapshotSilence time.Duration // without progress a snapshot is given up; 0: 60 s

	Interval time.Duration // of heartbeats; 0: 100 ms
	Log      *slog.Logger
}

// Transport is a node's connections to its peers.
type Transport struct {
	o       Options
	born    time.Time     // what heard.at counts from
	changed chan struct{} // there are links to start
	inbound sync.WaitGroup
	shaking atomic.Int64 // inbound connections in handshake
	mu      struct {
		sync.Mutex
		links    map[string]*links
		known    map[string]*known     // by node id
		accepted map[*session]string   // inbound connections, and the node once it is known
		dialled  map[*session]struct{} // outbound ones
		refused  map[string]time.Time
		stopped  bool
		fenced   *RefusalError // nil: this node may take part
	}
}

// links are the outbound connections to one peer.
type links struct {
	raft, call *link
}

// known is the newest incarnation of a node that said hello.
type known struct {
	disk  api.DiskID
	heard *heard
}

// heard says when an incarnation was last heard.
type heard struct {
	inc api.Incarnation
	at  atomic.Int64 // nanoseconds since Transport.born
}

// New returns a transport without peers.
func New(o Options) *Transport {
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.SnapshotSilence == 0 {
		o.SnapshotSilence = snapshotSilence
	}
	t := &Transport{o: o, born: time.Now(), changed: make(chan struct{}, 1)}
	t.mu.links = make(map[string]*links)
	t.mu.known = make(map[string]*known)
	t.mu.accepted = make(map[*session]string)
	t.mu.dialled = make(map[*session]struct{})
	t.mu.refused = make(map[string]time.Time)
	return t
}

// Run dials the peers and keeps the connections until ctx ends. It returns nil
// when every connection is closed and every goroutine, those of inbound
// connections included, has ended.
func (t *Transport) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for ctx.Err() == nil {
		t.startLinks(ctx, &wg)
		select {
		case <-t.changed:
		case <-ctx.Done():
		}
	}
	t.stop()
	wg.Wait()
	t.inbound.Wait()
	return nil
}

func (t *Transport) startLinks(ctx context.Context, wg *sync.WaitGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ls := range t.mu.links {
		for _, l := range []*link{ls.raft, ls.call} {
			if run := l.start(ctx); run != nil {
				wg.Go(run)
			}
		}
	}
}

// stop refuses what comes from now on and closes what is there; the outbound
// connections close with Run's ctx.
func (t *Transport) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.stopped = true
	for s := range t.mu.accepted {
		s.close(errStopped)
	}
	for _, ls := range t.mu.links {
		ls.raft.retire(errStopped)
		ls.call.retire(errStopped)
	}
}

// SetPeers says which nodes there are, without this one, and the URL of each. It
// starts and stops the dialling, and dials anew where an address changed.
func (t *Transport) SetPeers(addrs map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.stopped || t.mu.fenced != nil {
		return
	}
	for node, ls := range t.mu.links {
		if _, ok := addrs[node]; !ok {
			ls.raft.retire(errRemoved)
			ls.call.retire(errRemoved)
			delete(t.mu.links, node)
		}
	}
	for node, address := range addrs {
		if ls := t.mu.links[node]; ls != nil {
			ls.raft.move(address)
			ls.call.move(address)
			continue
		}
		t.mu.links[node] = &links{
			raft: newLink(t, node, wire.ConnRaft, address),
			call: newLink(t, node, wire.ConnCall, address),
		}
	}
	notify(t.changed)
}

// peer returns the links to a node, or nil if it is no peer.
func (t *Transport) peer(node string) *links {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.links[node]
}

// SendRaft queues a batch of raft messages for a peer and never blocks. It
// reports false when the batch was dropped: there is no connection, more than
// 16 MiB wait, or the batch is larger than a frame may be. The batch must not be
// changed afterwards.
func (t *Transport) SendRaft(to string, frame []byte) bool {
	ls := t.peer(to)
	if ls == nil || len(frame) > wire.MaxFrame {
		return false
	}
	c := ls.raft.current()
	return c != nil && c.queue.push(item{kind: wire.FrameRaft, payload: frame}) == nil
}

// Call asks a peer and waits for its answer, which is the caller's. While there
// is no connection it waits for one attempt to dial. The error wraps
// ErrUnreachable if nothing was delivered, and ErrBroken if the call was sent and
// no answer came; either also wraps ctx's error if that is why. Otherwise it is
// the *api.Error that the peer answered. An *api.Error in the chain is always the
// answer to the call itself.
func (t *Transport) Call(ctx context.Context, to string, method wire.Method, payload []byte) ([]byte, error) {
	if err := checkSize(payload); err != nil {
		return nil, err
	}
	ls := t.peer(to)
	if ls == nil {
		return nil, fmt.Errorf("%w: no address is known for node %s", ErrUnreachable, to)
	}
	for {
		c, err := ls.call.ready(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: node %s: %w", ErrUnreachable, to, err)
		}
		answer, err := c.do(ctx, method, payload)
		if errors.Is(err, errRenewed) && errors.Is(err, ErrUnreachable) && ctx.Err() == nil {
			continue // it was not sent, and another connection stands
		}
		return answer, err
	}
}

// checkSize leaves room in the frame for a call's header.
func checkSize(payload []byte) error {
	const limit = wire.MaxFrame - 64
	if len(payload) <= limit {
		return nil
	}
	return &api.Error{
		Code:    api.CodeTooLarge,
		Message: fmt.Sprintf("a message between nodes of %d bytes: the limit is %d", len(payload), limit),
	}
}

// Nudge sends every peer a heartbeat now.
func (t *Transport) Nudge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ls := range t.mu.links {
		notify(ls.raft.nudge)
	}
}

// along sends the peers whose next heartbeat is due soon theirs now.
func (t *Transport) along() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ls := range t.mu.links {
		notify(ls.raft.along)
	}
}

// Heard returns the newest known incarnation of a node and when a byte of it last
// arrived; zero values if it never said hello.
func (t *Transport) Heard(node string) (api.Incarnation, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.mu.known[node]
	if k == nil {
		return api.Incarnation{}, time.Time{}
	}
	return k.heard.inc, t.born.Add(time.Duration(k.heard.at.Load()))
}

// outdated returns an error if the remote's disk has said hello with a newer
// incarnation.
func (t *Transport) outdated(remote *wire.Hello) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outdatedLocked(remote)
}

func (t *Transport) outdatedLocked(remote *wire.Hello) error {
	k := t.mu.known[remote.Incarnation.Node]
	if k != nil && k.disk == remote.Disk && k.heard.inc.Compare(remote.Incarnation) > 0 {
		return fmt.Errorf("incarnation %s is over: %s has said hello", remote.Incarnation, k.heard.inc)
	}
	return nil
}

// meet records that an incarnation said hello on s and was admitted, closes
// connections to an older one, and has whatever is not connected to it dialled
// now. The error is outdated's.
func (t *Transport) meet(s *session) error {
	inc := s.remote.Incarnation
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.outdatedLocked(&s.remote); err != nil {
		return err
	}
	k := t.mu.known[inc.Node]
	if k == nil || k.heard.inc != inc {
		k = &known{disk: s.remote.Disk, heard: &heard{inc: inc}}
		t.mu.known[inc.Node] = k
		for older, node := range t.mu.accepted {
			if node == inc.Node {
				older.close(errOlder)
			}
		}
	}
	if _, inbound := t.mu.accepted[s]; inbound {
		t.mu.accepted[s] = inc.Node
	}
	s.tap.heard = k.heard
	s.tap.note()
	if ls := t.mu.links[inc.Node]; ls != nil {
		ls.raft.seen(inc)
		ls.call.seen(inc)
	}
	return nil
}

// notify wakes whoever waits on a channel of capacity 1.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
