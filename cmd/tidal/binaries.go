package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"tidal/node/api"
)

// sendingLeft is how long nothing was written to a binary on its way before it is one
// whose node was killed meanwhile. Others of the same path may be sent one now.
const sendingLeft = time.Hour

// A binary that is sent is written to the disk in such pieces, with such rests: the
// node and its disk have other things to do meanwhile. It makes 32 MiB a second at most.
const (
	trickleBytes = 1 << 20
	trickleRest  = time.Second / 32
)

// binaries are this node's binary and those that can take its place. They are in one
// folder, named after the path by which the process was called:
//
//	tidal                    what a restart runs, and the supervisor starts
//	tidal.previous           what stood there before the last one that was put there
//	.tidal.staged-SHA256     sent here, and not put there
//	.tidal.sending-RANDOM    on its way here
//	.tidal.next              what takes its place when the node restarts
//	.tidal.kept              what stands there now, by another name
//
// One takes the place of another by renaming, so that at any moment there is a whole
// one; a link is replaced, and what it led to stays. Nodes that were called by the same
// path share all of it.
type binaries struct {
	path    string // absolute
	args    []string
	environ []string
	levels  api.Levels
	link    func(from, to string) error // nil: os.Link

	sending sync.Mutex // held while one is sent
	placing sync.Mutex // held while one is made ready for its place
	mu      struct {
		sync.Mutex
		running  string                 // hash of this process's binary
		hashes   map[string]hashed      // by path
		releases map[string]api.Release // by hash, of those that have said what they are
	}
}

// hashed is what a file's hash was, and what it was the hash of.
type hashed struct {
	info fs.FileInfo
	sum  string
}

func (b *binaries) previous() string { return b.path + ".previous" }

// hidden is the path of a file of this program's own, beside the binary.
func (b *binaries) hidden(what string) string {
	dir, name := filepath.Split(b.path)
	return dir + "." + name + "." + what
}

func (b *binaries) staged(sum string) string { return b.hidden("staged-" + sum) }

// beside returns the files of this program's own that begin so.
func (b *binaries) beside(what string) ([]string, error) {
	return filepath.Glob(globbed(b.hidden(what)) + "*")
}

// hash returns the SHA-256 of a file, "" if there is none.
func (b *binaries) hash(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	sum, err := b.hashOf(path, f)
	return sum, errors.Join(err, f.Close())
}

func (b *binaries) hashOf(path string, f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	sum, known := b.hashBefore(info)
	if !known {
		h := sha256.New()
		if _, err = io.Copy(h, f); err != nil {
			return "", err
		}
		sum = hex.EncodeToString(h.Sum(nil))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.hashes == nil {
		b.mu.hashes = map[string]hashed{}
	}
	b.mu.hashes[path] = hashed{info, sum}
	return sum, nil
}

// hashBefore returns the hash that a file had, under whatever name, if it is as it was.
func (b *binaries) hashBefore(info fs.FileInfo) (sum string, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.mu.hashes {
		if os.SameFile(h.info, info) && h.info.Size() == info.Size() && h.info.ModTime().Equal(info.ModTime()) {
			return h.sum, true
		}
	}
	return "", false
}

// running returns the hash of what this process runs, whatever stands at its path now.
func (b *binaries) running() (string, error) {
	b.mu.Lock()
	sum := b.mu.running
	b.mu.Unlock()
	if sum != "" {
		return sum, nil
	}
	own := "/proc/self/exe" // the file itself, also when it has no name any more
	if _, err := os.Stat(own); err != nil {
		own = b.path
	}
	sum, err := b.hash(own)
	if err != nil {
		return "", fmt.Errorf("hash the binary that runs: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.running = sum
	return sum, nil
}

// find returns where the binary with that hash is.
func (b *binaries) find(sum string) (string, error) {
	for _, path := range []string{b.path, b.previous(), b.staged(sum)} {
		got, err := b.hash(path)
		if err != nil {
			return "", err
		}
		if got == sum {
			return path, nil
		}
	}
	return "", &api.Error{
		Code: api.CodeNotFound, Message: fmt.Sprintf("there is no binary %.12s beside %s", sum, b.path),
		Hint: "send it: tidal roll stage --binary FILE",
	}
}

// Check implements node.Program.
func (b *binaries) Check(ctx context.Context, sum string) (api.Program, error) {
	path := b.path
	if sum != "" {
		var err error
		if path, err = b.find(sum); err != nil {
			return api.Program{}, err
		}
	}
	return b.try(ctx, path)
}

// try asks a binary what it is, and whether it would start as this node.
func (b *binaries) try(ctx context.Context, path string) (api.Program, error) {
	p, err := b.describe(ctx, path)
	if err != nil {
		return p, err
	}
	return p, checkProgram(ctx, path, b.args, b.environ)
}

// describe asks a binary what it is.
func (b *binaries) describe(ctx context.Context, path string) (api.Program, error) {
	p := api.Program{Path: path}
	var err error
	if p.SHA256, err = b.hash(path); err != nil {
		return p, err
	}
	if p.SHA256 == "" {
		return p, fmt.Errorf("there is no file %s", path)
	}
	if known, is := b.known(p.SHA256); is {
		p.Release = known
		return p, nil
	}
	answer, err := ask(ctx, path, b.environ, "version", "-o", "json")
	if err != nil {
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = at.Err // whoever sent it knows no path
		}
		return p, fmt.Errorf("it does not run on this machine (%s/%s): %w", runtime.GOOS, runtime.GOARCH, err)
	}
	if err = json.Unmarshal(answer, &p.Release); err != nil || p.Version == "" {
		return p, fmt.Errorf("it is not tidal: `version -o json` says %.100q", answer)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.releases == nil {
		b.mu.releases = map[string]api.Release{}
	}
	b.mu.releases[p.SHA256] = p.Release
	return p, nil
}

// known returns what the binary with that hash is, if it runs here or was asked before:
// starting one costs more than an answer.
func (b *binaries) known(sum string) (r api.Release, is bool) {
	if own, err := b.running(); err == nil && own == sum {
		return b.release(), true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r, is = b.mu.releases[sum]
	return r, is
}

// release is what this process is.
func (b *binaries) release() api.Release {
	return api.Release{Version: version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Levels: b.levels}
}

// List implements node.Program.
func (b *binaries) List(ctx context.Context) (api.Programs, error) {
	sum, err := b.running()
	if err != nil {
		return api.Programs{}, err
	}
	list := api.Programs{Staged: []api.Program{}}
	list.Running = api.Program{SHA256: sum, Path: b.path, Release: b.release()}
	list.Installed = b.look(ctx, b.path)
	list.Previous = b.look(ctx, b.previous())
	files, err := b.beside("staged-")
	if err != nil {
		return list, err
	}
	for _, path := range files {
		if p := b.look(ctx, path); p != nil {
			list.Staged = append(list.Staged, *p)
		}
	}
	return list, nil
}

// globbed is a path as a pattern that matches it alone.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// look describes a binary, nil if it is not there.
func (b *binaries) look(ctx context.Context, path string) *api.Program {
	p, err := b.describe(ctx, path)
	if err != nil && p.SHA256 == "" {
		if _, gone := os.Stat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
	}
	if err != nil {
		p.Problem = err.Error()
	}
	return &p
}

// Stage implements node.Program.
func (b *binaries) Stage(ctx context.Context, sum string, content io.Reader) (api.Program, error) {
	if !b.sending.TryLock() {
		return api.Program{}, &api.Error{Code: api.CodeConflict, Message: "another binary is being sent to this node", Hint: "try again when it is there"}
	}
	defer b.sending.Unlock()
	if err := b.dropLeft(); err != nil {
		return api.Program{}, err
	}
	p, err := b.receive(ctx, sum, content)
	if err != nil {
		return p, err
	}
	return p, b.dropStaged(sum)
}

// receive stages what is sent, if it is what was announced and can run this node. It is
// tried before it has the name by which other nodes of the same path would find it.
func (b *binaries) receive(ctx context.Context, sum string, content io.Reader) (p api.Program, err error) {
	h := sha256.New()
	err = b.write(io.TeeReader(content, h), b.staged(sum), func(path string) (err error) {
		if got := hex.EncodeToString(h.Sum(nil)); got != sum {
			return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("the binary that came is %.12s, and %.12s was announced", got, sum)}
		}
		p, err = b.try(ctx, path)
		p.Path = b.staged(sum)
		return err
	})
	return p, err
}

// write writes a binary, by a name that is no other's until it is whole and approved.
func (b *binaries) write(content io.Reader, to string, approve func(path string) error) error {
	f, err := os.CreateTemp(filepath.Dir(b.path), filepath.Base(b.hidden("sending-*")))
	if err != nil {
		return notWritable(b.path, err)
	}
	if err = trickle(f, content); err == nil {
		err = f.Chmod(0o755)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = approve(f.Name())
	}
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// trickle copies a file to the disk bit by bit. All at once it would hold up the requests
// of clients, and a sync of all of it those of the database on the same disk.
func trickle(to *os.File, from io.Reader) error {
	for {
		switch _, err := io.CopyN(to, from, trickleBytes); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := to.Sync(); err != nil {
			return err
		}
		time.Sleep(trickleRest)
	}
}

// notWritable says that the folder of the binary takes no other one.
func notWritable(path string, err error) error {
	return &api.Error{
		Code: api.CodeConflict, Message: fmt.Sprintf("no binary can be put beside %s: %v", path, err),
		Hint: "give the node's user a folder of its own for its binary; or put the new one there yourself, and roll with --upgrade-to",
	}
}

// dropLeft removes what is left of binaries whose sending nobody ended.
func (b *binaries) dropLeft() error {
	files, err := b.beside("sending-")
	for _, path := range files {
		if info, statErr := os.Stat(path); statErr == nil && time.Since(info.ModTime()) > sendingLeft {
			err = errors.Join(err, remove(path))
		}
	}
	if err != nil {
		return notWritable(b.path, err)
	}
	return nil
}

// dropStaged removes the staged binaries but one: nobody wants them any more.
func (b *binaries) dropStaged(but string) error {
	files, err := b.beside("staged-")
	for _, path := range files {
		if path != b.staged(but) {
			err = errors.Join(err, remove(path))
		}
	}
	return err
}

// Prepare implements node.Program.
func (b *binaries) Prepare(sum, checked string) error {
	if sum == "" {
		return b.unchanged(checked)
	}
	b.placing.Lock()
	defer b.placing.Unlock()
	from, err := b.find(sum)
	if err != nil || from == b.path {
		return err
	}
	if err = errors.Join(b.double(from, b.hidden("next")), b.double(b.path, b.hidden("kept"))); err != nil {
		return notWritable(b.path, err)
	}
	return nil
}

// unchanged is an error if another binary stands in this one's place than the one that
// was checked.
func (b *binaries) unchanged(checked string) error {
	now, err := b.hash(b.path)
	if err == nil && now != checked {
		err = fmt.Errorf("%s is another binary since it was checked: it was %.12s, and is %.12s", b.path, checked, now)
	}
	return err
}

// double gives a binary a second name, unless it has that already. It is a copy where
// no link can be made: of another user's file none may be, on most machines.
func (b *binaries) double(from, to string) error {
	want, err := b.hash(from)
	if err == nil && want == "" {
		err = fmt.Errorf("there is no file %s", from)
	}
	if err != nil {
		return err
	}
	if got, err := b.hash(to); err != nil || got == want {
		return err
	}
	if err := remove(to); err != nil {
		return err
	}
	link := os.Link
	if b.link != nil {
		link = b.link
	}
	if link(from, to) == nil {
		return nil
	}
	return b.duplicate(from, to)
}

// duplicate copies a binary; of a link, where it leads.
func (b *binaries) duplicate(from, to string) error {
	if leads, err := os.Readlink(from); err == nil {
		return os.Symlink(leads, to)
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	return errors.Join(b.write(f, to, func(string) error { return nil }), f.Close())
}

// Install implements node.Program.
func (b *binaries) Install(sum string) error {
	if sum == "" {
		return nil
	}
	if at, err := b.hash(b.path); err != nil || at == sum {
		return err
	}
	next, kept := b.hidden("next"), b.hidden("kept")
	switch got, err := b.hash(next); {
	case err != nil:
		return err
	case got != sum:
		return fmt.Errorf("%s is not %.12s: it was changed since that was prepared", next, sum)
	}
	err := os.Rename(kept, b.previous())
	if err == nil {
		err = os.Rename(next, b.path)
	}
	if err != nil {
		return notWritable(b.path, err)
	}
	dir, err := os.Open(filepath.Dir(b.path))
	if err != nil {
		return fmt.Errorf("sync the folder of %s: %w", b.path, err)
	}
	return errors.Join(dir.Sync(), dir.Close(), remove(kept), remove(b.staged(sum)))
}

// remove removes a file that may not be there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
