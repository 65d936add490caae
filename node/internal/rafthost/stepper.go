package rafthost

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/raftlog"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// Stepper runs the groups of a node without starting a goroutine. Its methods
// are called by one goroutine. What the methods take in, Pass carries out.
type Stepper struct {
	o      Options
	cache  *raftlog.Cache
	groups map[uint64]*group
	list   []*group // the same, in the order in which they came

	awake  []*group        // those that are ticked, and a few that became quiet since the last tick
	lives  map[string]life // of the other nodes
	waking int             // how many of them are awake
	ticks  int
	lulled int // how often one became quiet
	deaths int // how many of lives are over
	races  []*group

	touched []*group
	out     map[string][]byte // batch under way for each node
	order   []string          // nodes in out, in the order in which they came up
	pass    uint64
	now     time.Duration // when the pass began, on the node's monotonic clock

	logBytes int64
	hold     hold
}

// NewStepper returns a Stepper without groups.
func NewStepper(o Options) (*Stepper, error) {
	if o.ElectionTicks == 0 {
		o.ElectionTicks = 10
	}
	if o.Stagger == 0 {
		o.Stagger = 50 * time.Millisecond
	}
	if o.Prefer == nil {
		o.Prefer = func(uint64, string) uint64 { return 0 }
	}
	if o.LogCache == 0 {
		o.LogCache = 64 << 20
	}
	if o.LogBytes == 0 {
		o.LogBytes = 64 << 20
	}
	if o.NodeLogBytes == 0 {
		o.NodeLogBytes = 1 << 30
	}
	if o.Memo == nil {
		o.Memo = func(*store.Batch) {}
	}
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	s := &Stepper{o: o, cache: raftlog.NewCache(o.LogCache), groups: map[uint64]*group{}, lives: map[string]life{}, out: map[string][]byte{}}
	if o.Clock == nil {
		s.o.Clock = func() time.Duration { return s.now }
	}
	var err error
	s.pass, err = o.DB.LastPass()
	return s, err
}

// Synced returns the number of the last batch that is on the disk for certain.
func (s *Stepper) Synced() uint64 { return s.pass }

// Add opens a group's replica, or makes it if the disk has none.
func (s *Stepper) Add(o GroupOptions) error {
	if s.groups[o.Group] != nil {
		return fmt.Errorf("group %d is open already", o.Group)
	}
	dead, err := s.tombstone(o.Group)
	if err != nil {
		return err
	}
	if o.Replica <= dead {
		return fmt.Errorf("group %d: replica %d was removed from this disk and cannot come back", o.Group, o.Replica)
	}
	g, err := openGroup(s.o, s.cache, o, s.sync)
	if err != nil {
		return err
	}
	s.groups[o.Group] = g
	s.list = append(s.list, g)
	s.touch(g)
	s.o.Events(Event{Group: g.id, State: g.state}) // the term that the disk knows
	return nil
}

// Remove drops a group's replica from the disk for ever, open or not: a tombstone
// keeps its id from coming back.
func (s *Stepper) Remove(id uint64) error {
	replica, err := raftlog.Replica(s.o.DB, id)
	if errors.Is(err, raftlog.ErrNoReplica) {
		return ErrNoGroup
	}
	if err != nil {
		return err
	}
	b := s.o.DB.NewBatch()
	b.Set(store.TombKey(id), wire.AppendUvarint(nil, replica))
	b.DeleteRange(store.GroupRange(id))
	if err := s.sync(b); err != nil {
		return err
	}
	g := s.groups[id]
	if g == nil {
		return nil
	}
	g.gone()
	g.log.Close()
	delete(s.groups, id)
	s.list = slices.DeleteFunc(s.list, func(o *group) bool { return o == g })
	s.touched = slices.DeleteFunc(s.touched, func(o *group) bool { return o == g })
	s.drop(g)
	s.o.Events(Event{Group: id, Was: g.state})
	return nil
}

func (s *Stepper) tombstone(group uint64) (uint64, error) {
	v, found, err := s.o.DB.Get(store.TombKey(group))
	if err != nil || !found {
		return 0, err
	}
	r := wire.NewReader(v)
	dead := r.Uvarint("tombstone")
	return dead, r.Done()
}

// Deliver takes a batch of raft messages that a node sent in one of its starts. What
// a start sent that is over, or that was declared dead and has not been heard anew
// since, is dropped: survivors that have forgotten it would follow it again. The
// error is that of a batch that cannot be read; what stood before the damage counts.
func (s *Stepper) Deliver(from string, start uint64, batch []byte) error {
	l := s.lives[from]
	if over := start < l.start || start == l.start && !l.alive; over && l.start != 0 && s.o.Defect != DeadFrames {
		return nil
	}
	return wire.DecodeRaft(batch, func(m wire.RaftMessage) { s.Receive(from, m) })
}

// Receive takes a raft message from another node. One that does not fit a group and
// its replicas, or comes from a node that does not hold the replica that it is of,
// is dropped: it was meant for a former life.
func (s *Stepper) Receive(from string, m wire.RaftMessage) {
	g := s.groups[m.Group]
	if g == nil || m.GetTo() != g.state.Replica || g.nodes[m.GetFrom()] != from || m.GetFrom() == g.state.Replica {
		return
	}
	switch m.GetType() {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp,
		pb.MsgHeartbeat, pb.MsgHeartbeatResp:
		if m.GetType() == pb.MsgPreVote {
			s.ask(g, m.Message)
		}
	case pb.MsgTimeoutNow:
		if !s.mayOrder(g, m.Message) {
			return
		}
	case wire.MsgCut:
		g.hearCut(m.Message)
		return
	default:
		return // nothing else travels between nodes
	}
	if s.refuses(g, m.Message) {
		return
	}
	if m.Word != nil {
		s.hear(g, m)
		return
	}
	s.saw(g, m.Message)
	// An answer of a replica that was removed meanwhile is all that fails here.
	_ = g.rn.Step(m.Message)
	s.touch(g)
}

// Propose queues data as an entry of a group. done is called once, from Pass or
// from here: with the machine's answer, or with one of ErrNoGroup, ErrNotLeader
// and ErrBusy (nothing was done) or ErrUnknown.
func (s *Stepper) Propose(group uint64, id [16]byte, data []byte, done func(answer any, err error)) {
	g := s.groups[group]
	if g == nil {
		done(nil, ErrNoGroup)
		return
	}
	if g.queuedBytes+len(data) > maxQueued {
		done(nil, ErrBusy)
		return
	}
	g.queued = append(g.queued, proposal{id: id, data: data, done: done})
	g.queuedBytes += len(data)
	s.touch(g)
}

// Read calls done once everything that any replica acknowledged before this call
// is applied here, or with ErrNoGroup or ErrNotLeader.
func (s *Stepper) Read(group uint64, done func(error)) {
	g := s.groups[group]
	if g == nil {
		done(ErrNoGroup)
		return
	}
	g.newReads = append(g.newReads, done)
	s.touch(g)
}

// Transfer hands the group to another replica. done is called once it leads no
// longer, or with ErrNoGroup, ErrNotLeader, ErrBusy or ErrTransfer.
func (s *Stepper) Transfer(group, to uint64, done func(error)) {
	g := s.groups[group]
	if g == nil {
		done(ErrNoGroup)
		return
	}
	g.startTransfer(&transfer{to: to, done: done})
	s.touch(g)
}

// Unreachable says that messages to a node may have been lost. Leaders stop
// sending ahead of its answers until it answers again.
func (s *Stepper) Unreachable(node string) {
	for _, g := range s.list {
		if !g.state.Leads {
			continue
		}
		for id, n := range g.nodes {
			if n == node {
				g.rn.ReportUnreachable(id)
				s.wake(g)
			}
		}
	}
}

// Campaign makes a replica stand for election now.
func (s *Stepper) Campaign(group uint64) {
	if g := s.groups[group]; g != nil {
		_ = g.rn.Campaign() // it cannot fail but by losing
		s.touch(g)
	}
}

// Progress returns a snapshot of a group, or false.
func (s *Stepper) Progress(group uint64) (Progress, bool) {
	g := s.groups[group]
	if g == nil {
		return Progress{}, false
	}
	p := g.progress()
	s.active(g, p.Peers)
	return p, true
}

// Dirty reports whether Pass has anything to do.
func (s *Stepper) Dirty() bool { return len(s.touched) > 0 }

// Stop ends all that waits.
func (s *Stepper) Stop() {
	for _, g := range s.list {
		g.gone()
	}
}

// work is what the Ready of one group asks for.
type work struct {
	g           *group
	entries     []*pb.Entry   // committed, to be applied
	applyResps  []*pb.Message // to step once they are
	appendMsg   *pb.Message   // what to write; nil: nothing
	appendResps []*pb.Message // to step or send once it is synced
	votes       []*pb.Message // requests for votes, likewise: see ready
}

// bytes is how much of entries a work has.
func (w *work) bytes() int {
	n := 0
	for _, e := range w.entries {
		n += len(e.GetData())
	}
	for _, e := range w.appendMsg.GetEntries() {
		n += len(e.GetData())
	}
	return n
}

// Pass carries out what was taken in: it gives raft the proposals and reads,
// sends what promises nothing, applies what is committed and answers it, writes
// once for all groups, and then sends what promises durability. now is the
// node's monotonic clock. An error means that the node must end.
func (s *Stepper) Pass(now time.Duration) error {
	todo := s.touched
	s.touched, s.now = nil, now
	works := make([]work, 0, len(todo))
	size := 0
	for i, g := range todo {
		if size >= maxPass {
			s.touched = append(s.touched, todo[i:]...) // theirs is the next one
			break
		}
		g.touched = false
		if !s.parks(g) {
			g.propose(now)
		}
		g.proposeConf()
		g.read()
		w := s.ready(g)
		size += w.bytes()
		works = append(works, w)
	}
	s.flush()
	if err := s.apply(works); err != nil {
		return err
	}
	if err := s.write(works); err != nil {
		return err
	}
	for _, w := range works {
		s.step(w.g, w.appendResps)
		s.step(w.g, w.votes)
	}
	s.flush()
	return nil
}

// ready takes what raft wants done for a group.
func (s *Stepper) ready(g *group) work {
	rd := g.rn.Ready()
	w := work{g: g}
	all := false
	if g.ticked && g.state.Leads {
		g.resting, all = s.mayRest(g, &rd)
	}
	g.confirmReads(rd.ReadStates)
	term := g.state.Term
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			w.appendMsg, w.appendResps = m, m.GetResponses()
			g.confAppended(m.GetEntries())
			if m.Term != nil { // a hard state is there
				term = m.GetTerm()
				g.gauge.Commit.Store(m.GetCommit())
			}
		case raft.LocalApplyThread:
			w.entries, w.applyResps = m.GetEntries(), m.GetResponses()
		default:
			s.dispatch(g, m, &w)
		}
	}
	g.greet(w.appendMsg)
	if was := g.state; g.observe(rd.SoftState, term) {
		s.o.Events(Event{Group: g.id, Was: was, State: g.state})
		if len(g.queued)+len(g.newReads) > 0 {
			s.touch(g) // they wait for another answer now
		}
	}
	s.beats(g, &rd, all)
	return w
}

// dispatch sends a message to another replica, or keeps it for when it may be sent.
func (s *Stepper) dispatch(g *group, m *pb.Message, w *work) {
	switch {
	case m.GetType() == pb.MsgSnap:
		s.ship(g, m)
	case s.yields(g, m) || s.withheld(g, m):
	case m.GetType() == pb.MsgVote:
		// It claims a log whose end may not be on the disk yet, if the append
		// and the word to campaign came in one pass. After a crash that lost
		// that end, the same term's next request would count votes that were
		// given to the longer log.
		w.votes = append(w.votes, m)
	default:
		s.send(g, m)
	}
}

// apply writes the effects of committed entries, not synced: the entries are on
// a quorum's disks, this one among them, and would be applied again.
func (s *Stepper) apply(works []work) error {
	b := s.o.DB.NewBatch()
	var answers []func()
	for _, w := range works {
		if err := w.g.apply(b, w.entries, s.o.Defect, &answers); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	if b.Empty() {
		if err := b.Close(); err != nil {
			return err
		}
	} else if err := s.commitApplies(b); err != nil {
		return err
	}
	for _, w := range works {
		if len(w.entries) > 0 {
			w.g.machine.Committed()
			w.g.gauge.Applied.Store(w.g.log.Applied().Index)
			w.g.gauge.Moved.Store(int64(s.o.Clock()))
			s.step(w.g, w.applyResps)
			if was := w.g.state; w.g.observe(nil, was.Term) {
				s.o.Events(Event{Group: w.g.id, Was: was, State: w.g.state})
			}
		}
		w.g.releaseReads()
	}
	for _, answer := range answers {
		answer()
	}
	return nil
}

func (s *Stepper) commitApplies(b *store.Batch) error {
	s.o.Memo(b)
	return b.Commit(false)
}

// write puts entries and hard states of all groups into one batch, and syncs it
// if anything waits for it.
func (s *Stepper) write(works []work) error {
	b := s.o.DB.NewBatch()
	sync := false
	for _, w := range works {
		if err := s.writeGroup(b, w); err != nil {
			return errors.Join(err, b.Close())
		}
		sync = sync || w.appendMsg != nil && len(w.appendResps) > 0
	}
	if b.Empty() {
		return b.Close()
	}
	s.o.Memo(b)
	if !sync || s.o.Defect == AckBeforeSync {
		return b.Commit(false)
	}
	return s.sync(b)
}

// writeGroup puts what one group has to write into b. A snapshot that arrived does
// not go that way: it is ingested at once, before b.
func (s *Stepper) writeGroup(b *store.Batch, w work) error {
	m := w.appendMsg
	arrives := m != nil && !raft.IsEmptySnap(m.GetSnapshot())
	if arrives {
		w.g.cut = 0 // of the log that goes: b comes after the ingest
	}
	if err := w.g.writeCut(b, s.o.Defect); err != nil || m == nil {
		return err
	}
	if arrives {
		if s.o.Defect == AckBeforeIngest {
			s.step(w.g, w.appendResps[:len(w.appendResps)-1]) // without raft's word to itself
			s.flush()
		}
		if err := s.ingest(w.g, m); err != nil {
			return err
		}
	}
	if m.Term != nil { // a hard state is there; its term may be 0
		w.g.log.SetHard(raftlog.HardState{Term: m.GetTerm(), Vote: s.vote(m), Commit: m.GetCommit()})
	}
	if err := w.g.log.Append(b, m.GetEntries()); err != nil {
		return err
	}
	w.g.log.WriteHard(b)
	return nil
}

// sync commits b with the number of the pass in it. Peers remember the highest
// that they heard, so a disk that went back in time is found out.
func (s *Stepper) sync(b *store.Batch) error {
	b.SetPass(s.pass + 1)
	if err := b.Commit(true); err != nil {
		return err
	}
	s.pass++
	return nil
}

func (s *Stepper) vote(m *pb.Message) uint64 {
	if s.o.Defect == VoteNotPersisted {
		return raft.None
	}
	return m.GetVote()
}

// step delivers responses: to the group itself, or to the peers.
func (s *Stepper) step(g *group, resps []*pb.Message) {
	for _, m := range resps {
		if m.GetTo() != g.state.Replica {
			s.send(g, m)
			continue
		}
		_ = g.rn.Step(m) // its own messages are always taken
		s.touch(g)
	}
}

func (s *Stepper) send(g *group, m *pb.Message) {
	s.post(g, m, func(b []byte) []byte { return wire.AppendRaft(b, g.id, m) })
}

// post adds a message to the batch for its receiver's node.
func (s *Stepper) post(g *group, m *pb.Message, add func([]byte) []byte) {
	node := g.nodes[m.GetTo()]
	if node == "" || m.GetTo() == g.state.Replica {
		return
	}
	b, started := s.out[node]
	if !started {
		s.order = append(s.order, node)
	}
	if len(b) == 0 {
		b = wire.AppendPass(wire.NewRaftBatch(), s.pass)
	}
	b = add(b)
	if len(b) >= wire.MaxRaftBatch {
		s.o.Sender.Send(node, b)
		b = nil
	}
	s.out[node] = b
}

func (s *Stepper) flush() {
	for _, node := range s.order {
		if b := s.out[node]; len(b) > 0 {
			s.o.Sender.Send(node, b)
		}
	}
	clear(s.out)
	s.order = s.order[:0]
}
