package rafthost

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"tidal/node/internal/raftlog"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// proposal is one entry on its way: queued here, then in raft's log, then applied.
type proposal struct {
	id   [16]byte
	data []byte
	done func(answer any, err error)
}

// readWait is a set of reads that one read index answers.
type readWait struct {
	seq   uint64
	index uint64 // 0 until raft has confirmed it
	done  []func(error)
}

type transfer struct {
	to   uint64
	done func(error)
}

// group is one replica.
type group struct {
	id      uint64
	log     *raftlog.Log
	rn      *raft.RawNode
	machine Machine
	arrive  func() Arriving
	gauge   *Gauge
	nodes   map[uint64]string
	state   State

	queued      []proposal              // not yet given to raft
	queuedBytes int                     // of their data
	appended    map[[16]byte][]proposal // accepted by raft, not yet applied
	lostAs      error                   // what becomes of those when another leads

	newReads []func(error) // not yet given to raft
	reads    []readWait    // given to raft, in order
	readSeq  uint64

	transfer *transfer
	conf     *confChange // on its way; nil: none
	arrival  *arrival    // a snapshot that raft was told of

	told     uint64 // entry that all replicas have, as far as known
	tells    int    // how often the followers are still to be told of it
	cut      uint64 // where the next pass cuts the log; 0: nowhere
	lastSeen uint64 // end of the log when it was last looked at

	// The leader's clock: when it stamped the last entry, and in which term.
	stamped     time.Duration
	stampedTerm uint64

	vital    bool // takes entries, however little space there is
	restless bool // never quiet, and followers are told of commits at once
	rest
	beat
	race    race
	touched bool
}

// createGroup makes a replica that the disk does not have.
func createGroup(o Options, g GroupOptions, sync func(*store.Batch) error) error {
	b := o.DB.NewBatch()
	if err := raftlog.Create(b, g.Group, g.Replica, g.Voters); err != nil {
		return errors.Join(err, b.Close())
	}
	if g.First != nil {
		g.First(b)
	}
	return sync(b)
}

func openGroup(o Options, cache *raftlog.Cache, g GroupOptions, sync func(*store.Batch) error) (*group, error) {
	log, err := raftlog.Open(o.DB, g.Group, cache)
	if errors.Is(err, raftlog.ErrNoReplica) {
		if err = createGroup(o, g, sync); err != nil {
			return nil, err
		}
		log, err = raftlog.Open(o.DB, g.Group, cache)
	}
	if err != nil {
		return nil, err
	}
	if log.Replica() != g.Replica {
		return nil, fmt.Errorf("group %d: the disk holds replica %d, the cluster expects %d here", g.Group, log.Replica(), g.Replica)
	}
	rn, err := raft.NewRawNode(&raft.Config{
		ID:                        g.Replica,
		ElectionTick:              o.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   log,
		Applied:                   log.Applied().Index,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxMessage,
		MaxCommittedSizePerReady:  maxCommitted,
		MaxUncommittedEntriesSize: maxUncommitted,
		MaxInflightMsgs:           maxInflightN,
		MaxInflightBytes:          maxInflight,
		CheckQuorum:               true,
		PreVote:                   true,
		Logger:                    raftLogger{group: g.Group},
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
	})
	if err != nil {
		return nil, fmt.Errorf("group %d: start raft: %w", g.Group, err)
	}
	gauge := g.Gauge
	if gauge == nil {
		gauge = &Gauge{}
	}
	gauge.Commit.Store(log.Hard().Commit)
	gauge.Applied.Store(log.Applied().Index)
	lostAs := ErrUnknown
	if o.Defect == StaleAppended {
		lostAs = ErrNotLeader
	}
	return &group{
		id: g.Group, log: log, rn: rn, machine: g.Machine, arrive: g.Arrive, gauge: gauge, nodes: g.Nodes,
		state:    State{Replica: g.Replica, Term: log.Hard().Term},
		appended: map[[16]byte][]proposal{}, lostAs: lostAs,
		restless: g.Restless, vital: g.Vital,
	}, nil
}

// propose gives raft what is queued, as one message. While the group is being
// handed over, raft would drop it: it waits here.
func (g *group) propose(now time.Duration) {
	switch {
	case len(g.queued) == 0 || g.transfer != nil:
		return
	case !g.state.Leads:
		g.refuseQueued(ErrNotLeader)
		return
	}
	at := g.stamped
	entries := make([]*pb.Entry, len(g.queued))
	for i := range g.queued {
		ms := uint64(0)
		if i == 0 && g.state.Term != g.stampedTerm {
			at = now
		} else {
			whole := (now - at).Truncate(time.Millisecond)
			ms = uint64(whole / time.Millisecond)
			at += whole
		}
		entries[i] = &pb.Entry{Data: stamp(ms, g.queued[i].data)}
	}
	m := &pb.Message{Type: pb.MsgProp.Enum(), From: &g.state.Replica, Entries: entries}
	if err := g.rn.Step(m); err != nil {
		// Deposed a moment ago: ready will see it and refuse what is queued. Or
		// raft's own bound on what is not committed: it stays queued, and the
		// bound on the queue pushes back.
		return
	}
	g.stamped, g.stampedTerm = at, g.state.Term
	for _, p := range g.queued {
		g.appended[p.id] = append(g.appended[p.id], p)
	}
	g.queued, g.queuedBytes = nil, 0
}

// stamp puts the header in front of an entry's data.
func stamp(ms uint64, data []byte) []byte {
	b := make([]byte, 0, 1+binary.MaxVarintLen64+len(data))
	b = append(b, entryHeader)
	b = binary.AppendUvarint(b, ms)
	return append(b, data...)
}

// Unstamp takes apart the data of an entry as the log has it: how long after the
// entry before it was proposed, and what was proposed.
func Unstamp(b []byte) (elapsed time.Duration, data []byte, err error) {
	r := wire.NewReader(b)
	if v := r.Byte("version of an entry"); r.Err() == nil && v != entryHeader {
		return 0, nil, fmt.Errorf("entry of version %d: this node reads version %d", v, entryHeader)
	}
	ms := r.Uvarint("elapsed time of an entry")
	return time.Duration(ms) * time.Millisecond, r.Rest(), r.Err()
}

// read asks raft for one read index for all reads that came since the last. It
// waits for an entry of the leader's own term: a group of one voter would answer
// before, with a commit index that a crash has set back.
func (g *group) read() {
	switch {
	case len(g.newReads) == 0:
		return
	case !g.state.Leads:
		refuse(g.newReads, ErrNotLeader)
		g.newReads = nil
		return
	case !g.state.Owns:
		return
	}
	g.readSeq++
	g.reads = append(g.reads, readWait{seq: g.readSeq, done: g.newReads})
	g.newReads = nil
	g.rn.ReadIndex(binary.BigEndian.AppendUint64(nil, g.readSeq))
}

func (g *group) confirmReads(states []raft.ReadState) {
	for _, s := range states {
		seq := binary.BigEndian.Uint64(s.RequestCtx)
		for i := range g.reads {
			if g.reads[i].seq == seq {
				g.reads[i].index = s.Index
			}
		}
	}
}

// releaseReads answers the reads whose index is applied here.
func (g *group) releaseReads() {
	n := 0
	for n < len(g.reads) && g.reads[n].index != 0 && g.reads[n].index <= g.log.Applied().Index {
		for _, done := range g.reads[n].done {
			done(nil)
		}
		n++
	}
	g.reads = g.reads[n:]
}

func refuse(reads []func(error), err error) {
	for _, done := range reads {
		done(err)
	}
}

func (g *group) refuseQueued(err error) {
	for _, p := range g.queued {
		p.done(nil, err)
	}
	g.queued, g.queuedBytes = nil, 0
}

// lost ends all that waits on this replica's leadership. What raft had accepted
// may still be committed by another leader: its outcome is unknown here.
func (g *group) lost(accepted error) {
	g.refuseQueued(ErrNotLeader)
	for _, id := range slices.SortedFunc(maps.Keys(g.appended), func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) }) {
		for _, p := range g.appended[id] {
			p.done(nil, accepted)
		}
	}
	clear(g.appended)
	for _, r := range g.reads {
		refuse(r.done, ErrNotLeader)
	}
	refuse(g.newReads, ErrNotLeader)
	g.reads, g.newReads = nil, nil
	if g.transfer != nil {
		g.transfer.done(nil)
		g.transfer = nil
	}
	g.lostConf()
}

// gone ends all that waits on this replica: it is removed, or its host ends.
func (g *group) gone() {
	g.lost(ErrUnknown)
	if g.arrival != nil {
		g.arrival.done(ErrNoGroup)
		g.arrival = nil
	}
}

// startTransfer begins a hand-over. Raft gives it up after an election timeout
// of ticks; checkTransfer sees that.
func (g *group) startTransfer(t *transfer) {
	switch {
	case !g.state.Leads:
		t.done(ErrNotLeader)
		return
	case g.transfer != nil:
		t.done(ErrBusy)
		return
	}
	g.rn.TransferLeader(t.to)
	if g.rn.BasicStatus().LeadTransferee != t.to {
		t.done(ErrTransfer) // not a voter, or itself
		return
	}
	g.transfer = t
}

func (g *group) checkTransfer() {
	if g.transfer != nil && g.rn.BasicStatus().LeadTransferee == raft.None {
		g.transfer.done(ErrTransfer)
		g.transfer = nil
	}
}

// observe takes over what raft says of its role and term, ends what waited on a
// leadership that is gone, and reports whether anything changed.
func (g *group) observe(soft *raft.SoftState, term uint64) bool {
	was := g.state
	g.state.Term = term
	if soft != nil {
		g.state.Lead, g.state.Leads = soft.Lead, soft.RaftState == raft.StateLeader
	}
	g.state.Owns = g.state.Leads && g.log.Applied().Term == term
	if !was.Leads {
		clear(g.unheard)
	}
	if was.Leads && (!g.state.Leads || term != was.Term) {
		g.lost(g.lostAs)
	}
	return g.state != was
}

func (g *group) progress() Progress {
	st := g.rn.BasicStatus()
	last, _ := g.log.LastIndex() // never fails
	p := Progress{State: g.state, Commit: st.GetCommit(), Applied: g.log.Applied().Index, Last: last, Conf: g.configuration()}
	if g.state.Leads {
		g.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
			if id != g.state.Replica {
				p.Peers = append(p.Peers, Peer{
					Replica: id, Node: g.nodes[id], Voter: typ == raft.ProgressTypePeer,
					Match: pr.Match, Active: pr.RecentActive,
				})
			}
		})
	}
	return p
}

// apply applies committed entries into b and answers the proposals among them
// through answers, to be called once b is in the database.
func (g *group) apply(b *store.Batch, entries []*pb.Entry, defect Defect, answers *[]func()) error {
	if len(entries) == 0 {
		return nil
	}
	a := g.log.Applied()
	for _, e := range entries {
		a.Index, a.Term = e.GetIndex(), e.GetTerm()
		if e.GetType() != pb.EntryNormal {
			conf, err := g.reconfigure(e, defect)
			if err != nil {
				return err
			}
			a.Conf = conf
			g.confApplied(e, len(conf.GetVotersOutgoing()) > 0, answers)
			continue
		}
		if err := g.applyNormal(b, e, answers); err != nil {
			return fmt.Errorf("group %d: apply entry %d: %w", g.id, e.GetIndex(), err)
		}
		if err := g.cutBatch(b, a); err != nil {
			return err
		}
		g.confApplied(e, len(a.Conf.GetVotersOutgoing()) > 0, answers)
	}
	g.machine.Flush(b)
	switch defect { //nolint:exhaustive // the others break other things
	case CommitNotWithRows:
		return g.log.ApplyWithoutCommit(b, a)
	case ConfNotWithRows:
		return g.log.ApplyWithoutConf(b, a)
	}
	return g.log.Apply(b, a)
}

// cutBatch ends the batch behind an entry if the machine wants to look at the
// database as it is then. What is applied there goes with it, so that a crash
// leaves a prefix as always.
func (g *group) cutBatch(b *store.Batch, a raftlog.Applied) error {
	if c, ok := g.machine.(Cutter); !ok || !c.Cut() {
		return nil
	}
	g.machine.Flush(b)
	if err := g.log.Apply(b, a); err != nil {
		return err
	}
	if err := b.Cut(); err != nil {
		return err
	}
	g.machine.Committed()
	return nil
}

func (g *group) applyNormal(b *store.Batch, e *pb.Entry, answers *[]func()) error {
	in := Entry{Index: e.GetIndex(), Term: e.GetTerm()}
	if len(e.GetData()) > 0 {
		var err error
		if in.Elapsed, in.Data, err = Unstamp(e.GetData()); err != nil {
			return err
		}
	}
	id, answer, err := g.machine.Apply(b, in)
	if err != nil {
		return err
	}
	if g.appended[id] != nil {
		*answers = append(*answers, g.answer(id, in.Data, answer))
	}
	return nil
}

// answer returns what tells an answer to those who proposed an entry. The same id
// with other data is another entry, which gets its own answer from the machine.
func (g *group) answer(id [16]byte, data []byte, answer any) func() {
	var mine, others []proposal
	for _, p := range g.appended[id] {
		if bytes.Equal(p.data, data) {
			mine = append(mine, p)
		} else {
			others = append(others, p)
		}
	}
	if g.appended[id] = others; others == nil {
		delete(g.appended, id)
	}
	return func() {
		for _, p := range mine {
			p.done(answer, nil)
		}
	}
}

func (g *group) reconfigure(e *pb.Entry, defect Defect) (*pb.ConfState, error) {
	var cc pb.ConfChangeI
	var err error
	if e.GetType() == pb.EntryConfChange {
		v1 := &pb.ConfChange{}
		cc, err = v1, proto.Unmarshal(e.GetData(), v1)
	} else {
		v2 := &pb.ConfChangeV2{}
		cc, err = v2, proto.Unmarshal(e.GetData(), v2)
		if defect == VotersAtOnce && err == nil && len(v2.GetChanges()) > 1 {
			var conf *pb.ConfState
			for _, one := range v2.GetChanges() {
				conf = g.rn.ApplyConfChange(&pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{one}})
			}
			return conf, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("group %d: configuration change %d: %w", g.id, e.GetIndex(), err)
	}
	return g.rn.ApplyConfChange(cc), nil
}
