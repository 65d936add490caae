package sim

import (
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a crashable file system in memory. Armed, it takes its own image in the
// middle of what the node is doing, as a crash there would have left it; the
// node goes on unaware, and whoever drives it drops all that it did from then on.
type disk struct {
	vfs.FS
	mem *vfs.MemFS

	mu struct {
		sync.Mutex
		point *crashPoint
		image *vfs.MemFS
	}
}

// crashPoint says where in the coming writes a disk crashes: at a sync, or so many
// bytes further. Counting calls would not do, since pebble splits the same bytes
// in one way or another.
type crashPoint struct {
	bytes  int
	atSync bool // before the next sync instead
	synced bool // only what was synced survives, else all that was written
}

func newDisk(mem *vfs.MemFS) *disk { return &disk{FS: mem, mem: mem} }

// arm sets a crash point.
func (d *disk) arm(p crashPoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.point = &p
}

// disarm removes a crash point that was not reached.
func (d *disk) disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.point = nil
}

// image returns what the crash left on the disk, or nil if there was none yet.
func (d *disk) image() *vfs.MemFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.image
}

// crash ends the disk now. Which unsynced blocks survive is all or none: in
// between, pebble's clone draws in the order of a map, and no run would repeat.
// A torn write is what gives the prefixes.
func (d *disk) crash(synced bool) *vfs.MemFS { //nolint:revive // what survives is data of the run
	cfg := vfs.CrashCloneCfg{}
	if !synced {
		cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))} //nolint:gosec // no draw matters
	}
	return d.mem.CrashClone(cfg)
}

// written counts bytes that are about to be written. It returns how many of them
// reach the disk before it crashes, if it does.
func (d *disk) written(n int) (cut int, p *crashPoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = d.mu.point
	switch {
	case p == nil || p.atSync:
		return n, nil
	case p.bytes >= n:
		p.bytes -= n
		return n, nil
	}
	d.mu.point = nil
	return p.bytes, p
}

// syncs returns the crash point if it is at a sync, which is about to begin.
func (d *disk) syncs() *crashPoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.mu.point
	if p == nil || !p.atSync {
		return nil
	}
	d.mu.point = nil
	return p
}

func (d *disk) keep(image *vfs.MemFS) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.image = image
}

// Create implements vfs.FS.
func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.FS.Create(name, c))
}

// OpenReadWrite implements vfs.FS.
func (d *disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return d.wrap(d.FS.OpenReadWrite(name, c, o...))
}

// ReuseForWrite implements vfs.FS.
func (d *disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.FS.ReuseForWrite(from, to, c))
}

func (d *disk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &file{File: f, disk: d}, nil
}

// file is a file that may crash its disk.
type file struct {
	vfs.File
	disk *disk
}

// Write implements vfs.File.
func (f *file) Write(p []byte) (int, error) {
	cut, point := f.disk.written(len(p))
	n, err := f.File.Write(p[:cut])
	if err != nil || point == nil {
		return n, err
	}
	f.disk.keep(f.disk.crash(point.synced))
	m, err := f.File.Write(p[cut:])
	return n + m, err
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	f.crashBefore()
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *file) SyncData() error {
	f.crashBefore()
	return f.File.SyncData()
}

func (f *file) crashBefore() {
	if point := f.disk.syncs(); point != nil {
		f.disk.keep(f.disk.crash(point.synced))
	}
}
