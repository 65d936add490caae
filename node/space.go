package node

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidal/node/api"
	"tidal/node/internal/store"
)

// Times of the look at the space that a disk has left.
const (
	spaceLook   = 250 * time.Millisecond
	spaceRest   = time.Second // instead, while spacePlenty is left beyond the reserve
	spacePlenty = 16 << 30    // bytes; no disk takes as much in spaceRest
	ballastRest = time.Minute // after the ballast could not be made
)

// space is what a node knows of the space on its disk. Below the reserve the node
// is full: it gives away what it owns and takes no rows. A ballast file goes when
// even that was not enough, so that votes can still be written, and the database
// can tidy up.
type space struct {
	n       *node
	ballast store.Ballast // of a size that only the looks know
	total   atomic.Int64  // 0: the file system does not say
	free    atomic.Int64
	reserve atomic.Int64
	full    atomic.Bool
	size    atomic.Int64  // of the ballast
	held    atomic.Bool   // it is there
	failed  time.Time     // when it could last not be made
	short   chan struct{} // something that was written found no space; capacity 1
}

func newSpace(n *node) *space {
	s := &space{n: n, short: make(chan struct{}, 1)}
	s.ballast = store.Ballast{Disk: n.o.Disk, Path: filepath.Join(n.o.Config.Node.Data, "BALLAST")}
	return s
}

// verdict is what so much free space means for a node that was full or not: it
// leaves that state at a quarter more than the reserve. Below a quarter of it the
// ballast goes; it comes back when the node is not full afterwards either.
func verdict(free, reserve, ballast int64, was bool) (full, drop, fill bool) {
	back := reserve + reserve/4
	full = free < reserve || was && free < back
	return full, free < reserve/4, !full && free >= back+ballast
}

// look finds out how much is left, and does what that asks of the ballast. It
// returns whether the node is full now.
func (s *space) look() (full bool, err error) {
	now, known, err := store.SpaceOf(s.n.o.Disk, s.n.o.Config.Node.Data)
	if err != nil || !known {
		return s.full.Load(), err
	}
	size, reserve := s.n.o.Config.Disk.Sizes(now.Total)
	ballast := s.ballast // a copy: ranOut may be at work on it
	ballast.Size = size
	s.size.Store(size)
	s.total.Store(now.Total)
	s.free.Store(now.Free)
	s.reserve.Store(reserve)
	full, drop, fill := verdict(now.Free, reserve, size, s.full.Load())
	switch {
	case drop:
		if err := s.drop(now.Free); err != nil {
			return full, err
		}
	case fill && !s.held.Load() && time.Since(s.failed) >= ballastRest:
		if err := ballast.Fill(); err != nil {
			s.failed = time.Now()
			s.n.log.Warn("no ballast", "error", err)
		}
	}
	s.held.Store(size > 0 && ballast.There())
	return full, nil
}

// drop deletes the ballast, if it is there, when so many bytes are left.
func (s *space) drop(free int64) error {
	dropped, err := s.ballast.Drop()
	if dropped && err == nil {
		s.n.log.Warn("the ballast is gone: the disk has no other space left", "free", free, "ballast", s.size.Load())
	}
	return err
}

// ranOut makes space for the database, which found none: the last look was too early.
func (s *space) ranOut() {
	if err := s.drop(0); err != nil {
		s.n.log.Warn("the ballast stays, and a write found no space", "error", err)
	}
	select {
	case s.short <- struct{}{}:
	default:
	}
}

// keepSpace looks at the disk until ctx ends, and tells the others of the node.
func (n *node) keepSpace(ctx context.Context) error {
	every := spaceLook
	t := time.NewTicker(every)
	defer t.Stop()
	if n.space.full.Load() {
		n.log.WarnContext(ctx, "the disk is full: the node takes no rows", "free", n.space.free.Load(), "reserve", n.space.reserve.Load())
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-n.space.short: // before more rows are taken
		}
		full, err := n.space.look()
		switch was := n.space.full.Load(); {
		case err != nil:
			n.log.WarnContext(ctx, "free space", "error", err)
		case full && !was:
			n.space.full.Store(true)
			n.cluster.SetCrowded(true)
			n.log.WarnContext(ctx, "the disk is full: the node takes no rows", "free", n.space.free.Load(), "reserve", n.space.reserve.Load())
		case !full && was:
			n.cluster.SetCrowded(false) // who sees that the node is ready may write
			n.space.full.Store(false)
			n.log.InfoContext(ctx, "the disk has space again", "free", n.space.free.Load())
		}
		if next := n.space.pace(); next != every {
			every = next
			t.Reset(every)
		}
	}
}

// pace is the time until the next look.
func (s *space) pace() time.Duration {
	if s.free.Load()-s.reserve.Load() > spacePlenty {
		return spaceRest
	}
	return spaceLook
}

// complaint says what is left, if that is hardly anything; else "".
func (s *space) complaint() string {
	if !s.full.Load() {
		return ""
	}
	return fmt.Sprintf("the disk has %d MiB left: below %d MiB the node owns no table and takes no rows", s.free.Load()>>20, s.reserve.Load()>>20)
}

// room refuses a table's snapshot that the disk has no space for.
func (s *space) room(group uint64, bytes int64) error {
	left := s.free.Load() - bytes - s.reserve.Load()
	if s.total.Load() == 0 || api.TableID(group) == api.MetaGroup || left >= 0 && !s.full.Load() {
		return nil
	}
	return &api.Error{
		Code:    api.CodeDiskFull,
		Message: fmt.Sprintf("node %s has %d MiB of disk left, and a snapshot of %d MiB would leave less than %d MiB", s.n.o.Config.Node.ID, s.free.Load()>>20, bytes>>20, s.reserve.Load()>>20),
	}
}

// show is what /cluster/status/local says.
func (s *space) show() *api.Space {
	if s.total.Load() == 0 {
		return nil
	}
	out := &api.Space{
		Available: uint64(s.free.Load()), Total: uint64(s.total.Load()), Reserve: uint64(s.reserve.Load()), Full: s.full.Load(),
	}
	if s.held.Load() {
		out.Ballast = uint64(s.size.Load())
	}
	return out
}

// spaceMeters are the metrics of the space on the disk.
func spaceMeters(n *node) []prometheus.Collector {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	return []prometheus.Collector{
		gauge("tidal_disk_free_bytes", "Bytes that the file system of the data directory has left.", func() float64 { return float64(n.space.free.Load()) }),
		gauge("tidal_disk_reserve_bytes", "Bytes that must be left, or the node takes no rows.", func() float64 { return float64(n.space.reserve.Load()) }),
		gauge("tidal_disk_full", "1 while the node takes no rows, for want of space.", func() float64 { return truth(n.space.full.Load()) }),
	}
}
