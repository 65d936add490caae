package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/internal/store"
)

// deposit is a database as a crash left it: the files, and each state that was on
// the disk for certain, in order. Every state counts one more than the one before.
type deposit struct {
	files  map[string][]byte
	states []map[string]string
	synced int64 // how long the log was when the last state but three was synced
}

const (
	tornBatches = 40
	shortRow    = 48  // bytes
	longRow     = 400 // so that the log has several blocks, of which pebble notes what was synced
)

func passKey() []byte { return store.NodeKey(store.NodePass) }

// contentOf is all that a database holds.
func contentOf(db *store.DB) (map[string]string, error) {
	out := map[string]string{}
	err := db.Scan(nil, []byte{0xff}, func(k, v []byte) error {
		out[string(k)] = string(v)
		return nil
	})
	return out, err
}

// makeDeposit fills a database with tables and a log behind them, each batch with
// the number of its pass, as the raft loop does.
func makeDeposit(t *testing.T, size int) *deposit {
	t.Helper()
	fs := vfs.NewMem()
	d := &deposit{}
	db := open(t, fs)
	pass := uint64(0)
	write := func() {
		pass++
		b := db.NewBatch()
		b.Set(passKey(), binary.AppendUvarint(nil, pass))
		for i := range 3 {
			row := bytes.Repeat(fmt.Appendf(nil, "%d/%d ", pass, i), size/4)
			b.Set(store.EntryKey(7, pass*3+uint64(i)), row[:size])
		}
		check(t, b.Commit(true))
		now, err := contentOf(db)
		check(t, err)
		d.states = append(d.states, now)
	}
	for range tornBatches {
		write()
	}
	check(t, db.Close())
	db = open(t, fs) // what was in the log is in a table now
	for range tornBatches {
		if write(); len(d.states) == 2*tornBatches-3 {
			d.synced = int64(len(logOf(t, filesOf(t, fs))))
		}
	}
	d.files = filesOf(t, fs)
	check(t, db.Close())
	return d
}

// filesOf reads all files of a database.
func filesOf(t *testing.T, fs vfs.FS) map[string][]byte {
	t.Helper()
	names, err := fs.List("db")
	check(t, err)
	out := map[string][]byte{}
	for _, name := range names {
		f, err := fs.Open(fs.PathJoin("db", name))
		check(t, err)
		b, err := io.ReadAll(f)
		check(t, errors.Join(err, f.Close()))
		out[name] = b
	}
	return out
}

func logName(t *testing.T, all map[string][]byte) string {
	t.Helper()
	newest := ""
	for name := range all {
		if strings.HasSuffix(name, ".log") {
			newest = max(newest, name)
		}
	}
	if newest == "" {
		t.Fatal("there is no log")
	}
	return newest
}

func logOf(t *testing.T, all map[string][]byte) []byte {
	t.Helper()
	return all[logName(t, all)]
}

// with returns a disk that has the files, with one of them changed.
func (d *deposit) with(t *testing.T, name string, content []byte) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	check(t, fs.MkdirAll("db", 0o700))
	for n, b := range d.files {
		if n == name {
			b = content
		}
		f, err := fs.Create(fs.PathJoin("db", n), vfs.WriteCategoryUnspecified)
		check(t, err)
		_, err = f.Write(slices.Clone(b)) // a write may change what it is given
		check(t, errors.Join(err, f.Close()))
	}
	return fs
}

// outcome is what came of opening a damaged database and reading all of it.
type outcome struct {
	state int   // which one it has, counted from 0; -1: it was refused
	err   error // why, naming what the operator is told
}

// read opens the database and reads everything. It fails the test if what it reads
// is no state that ever was.
func (d *deposit) read(t *testing.T, what string, fs *vfs.MemFS) outcome {
	t.Helper()
	told := make(chan error, 16)
	db, err := store.Open("db", store.Options{FS: fs, Fatal: func(err error) { told <- err }, CacheBytes: 1 << 20})
	var now map[string]string
	if err == nil {
		now, err = contentOf(db)
		err = errors.Join(err, db.Close())
	}
	select {
	case first := <-told:
		err = first
	default:
	}
	if err != nil {
		return outcome{-1, err}
	}
	for i, state := range slices.Backward(d.states) {
		if maps.Equal(now, state) {
			return outcome{i, nil}
		}
	}
	t.Errorf("%s: %d keys, and no state ever was like that", what, len(now))
	return outcome{-1, nil}
}

// TestTornLog cuts the log in its last three batches: what is left is the state of
// the batches that are whole, exactly. At every byte, not some, with TIDAL_TORN.
func TestTornLog(t *testing.T) {
	d := makeDeposit(t, shortRow)
	name, log := logName(t, d.files), logOf(t, d.files)
	end := len(bytes.TrimRight(log, "\x00"))
	last := len(d.states) - 1
	was := last - 3
	step := 1
	if os.Getenv("TIDAL_TORN") == "" {
		step = 5
	}
	for cut := int(d.synced); cut <= end; cut = min(cut+step, max(end, cut+1)) {
		got := d.read(t, fmt.Sprintf("cut at %d", cut), d.with(t, name, log[:cut]))
		switch {
		case got.err != nil:
			t.Fatalf("cut at %d: refused: %v", cut, got.err)
		case got.state < was || got.state > last:
			t.Fatalf("cut at %d: state %d after %d", cut, got.state, was)
		}
		was = got.state
	}
	if was != last {
		t.Errorf("the whole log gives state %d of %d", was, last)
	}
}

// TestFlippedBits turns a bit in every region of every file: the state is exact, or
// the database is refused with the file, or the end of the log is cut, and then the
// number of the pass says so: peers remember a higher one. All bytes, not some,
// with TIDAL_TORN.
func TestFlippedBits(t *testing.T) {
	d := makeDeposit(t, longRow)
	last := len(d.states) - 1
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		whole := bytes.TrimRight(d.files[name], "\x00")
		step := 1
		if os.Getenv("TIDAL_TORN") == "" {
			step = max(1, len(whole)/20)
		}
		count := map[string]int{}
		for at := 0; at < len(whole); at += step {
			what := fmt.Sprintf("%s, byte %d", name, at)
			damaged := slices.Clone(d.files[name])
			damaged[at] ^= 1 << (at % 8)
			got := d.read(t, what, d.with(t, name, damaged))
			switch {
			case got.err != nil:
				count["refused"]++
				if count["refused"] == 1 {
					t.Logf("%s: %v", what, got.err)
				}
				if text := got.err.Error(); !strings.Contains(text, name) {
					t.Errorf("%s: the file is not named: %s", what, text)
				}
			case got.state == last:
				count["exact"]++
			case got.state >= 0:
				if !strings.HasSuffix(name, ".log") {
					t.Errorf("%s: state %d of %d, and nobody noticed", what, got.state, last)
				}
				count["cut"]++
			}
		}
		t.Logf("%s, %d bytes: %v", name, len(whole), count)
		if strings.HasSuffix(name, ".log") && (count["refused"] == 0 || count["cut"] == 0) {
			t.Errorf("%s: of damage in front of what is known to be synced, or behind it, there was none: %v", name, count)
		}
	}
}

// TestMissingFiles takes one file away. The state is exact, or the database is
// refused, or it goes back, and then the number of the pass does too.
func TestMissingFiles(t *testing.T) {
	d := makeDeposit(t, shortRow)
	last := len(d.states) - 1
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		fs := d.with(t, "", nil)
		check(t, fs.Remove(fs.PathJoin("db", name)))
		got := d.read(t, "without "+name, fs)
		switch {
		case got.err != nil:
			t.Logf("without %s: %v", name, got.err)
		case got.state < last:
			t.Logf("without %s: back at state %d of %d", name, got.state, last)
			if !strings.HasSuffix(name, ".log") {
				t.Errorf("without %s: nobody noticed", name)
			}
		}
	}
}

// TestDamagedOptions turns a letter of what pebble notes of its own options: the
// database is refused with the file. Pebble tells of no file there.
func TestDamagedOptions(t *testing.T) {
	d := makeDeposit(t, shortRow)
	names := slices.Sorted(maps.Keys(d.files))
	for _, name := range slices.Backward(names) { // an older list may not have been deleted yet
		data := d.files[name]
		damaged := bytes.Replace(data, []byte("pebble.concatenate"), []byte("pebble.concatenape"), 1)
		if !strings.HasPrefix(name, "OPTIONS-") || bytes.Equal(damaged, data) {
			continue
		}
		got := d.read(t, name, d.with(t, name, damaged))
		if got.err == nil || !strings.Contains(got.err.Error(), name) || !errors.Is(got.err, store.ErrDamaged) {
			t.Errorf("%s: %v", name, got.err)
		}
		return
	}
	t.Error("there is no list of options")
}
