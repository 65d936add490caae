package roll

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
)

// Binary is a file of tidal's that nodes are to run.
type Binary struct {
	Name     string
	SHA256   string
	Platform string // as linux/amd64; "": it cannot be told from the file
	Content  []byte
}

// ReadBinary reads a binary from a file.
func ReadBinary(path string) (*Binary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the binary: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(f, api.MaxProgram+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read the binary: %w", err)
	}
	if len(content) == 0 {
		return nil, fmt.Errorf("%s is empty, and no binary", path)
	}
	if len(content) > api.MaxProgram {
		return nil, fmt.Errorf("%s is too large for a binary: the limit is %d bytes", path, api.MaxProgram)
	}
	sum := sha256.Sum256(content)
	return &Binary{Name: path, SHA256: hex.EncodeToString(sum[:]), Platform: platform(content), Content: content}, nil
}

// platform says for which machine a program is, if it is one of Linux.
func platform(content []byte) string {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return ""
	}
	arch, known := map[elf.Machine]string{
		elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_386: "386", elf.EM_ARM: "arm",
		elf.EM_RISCV: "riscv64", elf.EM_S390: "s390x", elf.EM_PPC64: "ppc64le", elf.EM_LOONGARCH: "loong64",
	}[f.Machine]
	if !known {
		arch = f.Machine.String()
	}
	return "linux/" + arch
}

// Programs returns the binaries of a node.
func (c *Tidal) Programs(ctx context.Context, node string) (api.Programs, error) {
	a, err := c.address(node)
	if err != nil {
		return api.Programs{}, err
	}
	return c.Client.Programs(ctx, a)
}

// Running returns the SHA-256 of what a node runs.
func (c *Tidal) Running(ctx context.Context, node string) (string, error) {
	p, err := c.Programs(ctx, node)
	return p.Running.SHA256, err
}

// Ask asks every node of a view that answers which binaries it has, and notes in the
// view what each runs. Of a node that does not say it returns why.
func (c *Tidal) Ask(ctx context.Context, v *View) (all map[string]api.Programs, problems map[string]error) {
	all, problems = map[string]api.Programs{}, map[string]error{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(asksAtOnce)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		g.Go(func() error {
			var p api.Programs
			err := errors.New(n.why())
			if n.Live() {
				p, err = c.Programs(ctx, n.ID)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				problems[n.ID] = err
				return nil
			}
			all[n.ID], n.Binary = p, p.Running.SHA256
			return nil
		})
	}
	_ = g.Wait() // the functions return no errors
	return all, problems
}

// CheckBinary says before anything is done whether the nodes of a plan can come to run
// what it wants. b is the file that is to be sent, nil for none. What restarts a node from
// outside may bring the binary too: there it warns.
func CheckBinary(p *Plan, b *Binary, all map[string]api.Programs, problems map[string]error) Check {
	c := Check{Name: "binary", Level: OK}
	want := wantedText(p.Options, b)
	var wrong, unknown []string
	for _, id := range p.Rolled() {
		if err := problems[id]; err != nil {
			unknown = append(unknown, fmt.Sprintf("%s (%v)", id, err))
			continue
		}
		if why := unfit(all[id], p.Options, b); why != "" {
			wrong = append(wrong, id+" "+why)
		}
	}
	switch {
	case len(wrong) > 0:
		c.Level, c.Detail = Block, listed("node ", wrong, "; ")
		c.Hint = unfitHint(p.Options, b)
		if p.Options.Driver != DriverInPlace {
			c.Level, c.Hint = Warn, ""
			c.Detail += "; what restarts them must bring it there"
		}
	case len(unknown) > 0 && p.Options.Binary != "":
		c.Level, c.Detail, c.Hint = Block, "which binaries these nodes have is not known: "+names(unknown), "bring them back first, or leave them out with --skip"
	case len(unknown) > 0:
		c.Level, c.Detail = Warn, "what stands ready there is not known: "+names(unknown)
	case b != nil:
		c.Detail = want + " is sent and checked on every node before the first stop"
	default:
		c.Detail = want + " stands ready on every node"
		if p.Options.Driver == DriverInPlace {
			c.Detail += ", and is checked there before the first stop"
		}
	}
	return c
}

// wantedText names what a plan brings, for who is asked whether it is meant.
func wantedText(o Options, b *Binary) string {
	switch {
	case o.Binary == "":
		return o.Version
	case o.Version != "":
		return fmt.Sprintf("%s (the binary %.12s)", o.Version, o.Binary)
	case b != nil:
		return fmt.Sprintf("%s (the binary %.12s)", b.Name, o.Binary)
	}
	return fmt.Sprintf("the binary %.12s", o.Binary)
}

// unfitHint says what helps nodes that are unfit. To stage a binary does not put it at
// a node's path, where --upgrade-to looks; and a saved plan takes no --binary.
func unfitHint(o Options, b *Binary) string {
	switch {
	case b != nil:
		return "nodes of another platform are rolled apart, each kind with --only and a --binary of its own"
	case o.Binary != "":
		return "send it there first: tidal roll stage --binary FILE"
	}
	return "roll with --binary FILE, or put it there yourself"
}

// unfit says why a node cannot come to run what is wanted; "": it can.
func unfit(p api.Programs, o Options, b *Binary) string {
	machine := p.Running.OS + "/" + p.Running.Arch
	here := slices.Concat([]api.Program{p.Running}, p.Staged)
	for _, x := range []*api.Program{p.Installed, p.Previous} {
		if x != nil {
			here = append(here, *x)
		}
	}
	switch {
	case b != nil && b.Platform != "" && b.Platform != machine:
		return fmt.Sprintf("is %s, and %s is for %s", machine, b.Name, b.Platform)
	case b != nil:
		return ""
	case o.Binary != "":
		if !slices.ContainsFunc(here, func(x api.Program) bool { return x.SHA256 == o.Binary }) {
			return fmt.Sprintf("has no binary %.12s", o.Binary)
		}
	case p.Installed == nil:
		return "has no binary at " + p.Running.Path
	case p.Installed.Problem != "":
		return "cannot use its binary: " + p.Installed.Problem
	case p.Installed.Version != o.Version:
		return fmt.Sprintf("has %s at %s, and %s is wanted", p.Installed.Version, p.Installed.Path, o.Version)
	}
	return ""
}

// Staged is what came of a binary on a node.
type Staged struct {
	Node string
	Sent bool // it was not there before
	api.Program
}

// Stage has every one of some nodes have a binary and check it, one after another: its
// hash, that it runs on the machine, and that it can run the node. It is sent where it is
// missing; b may be nil if it should be everywhere. Each is told to say. The error names
// the nodes.
func (c *Tidal) Stage(ctx context.Context, nodes []string, sum string, b *Binary, say func(Staged)) error {
	return eachStaged(nodes, say, func(id string) (Staged, error) { return c.stage(ctx, id, sum, b) })
}

// CheckInstalled is Stage of what stands at the path of each node, which is to be of some
// version. A node that does not say what stands there has that as its problem.
func (c *Tidal) CheckInstalled(ctx context.Context, nodes []string, version string, say func(Staged)) error {
	return eachStaged(nodes, say, func(id string) (Staged, error) {
		p, err := c.Programs(ctx, id)
		if err != nil {
			return Staged{Node: id, Program: api.Program{Problem: err.Error()}}, nil //nolint:nilerr // it is said; the node checks it once more itself
		}
		if why := unfit(p, Options{Version: version}, nil); why != "" {
			return Staged{Node: id}, errors.New("it " + why)
		}
		return c.stage(ctx, id, p.Installed.SHA256, nil)
	})
}

// eachStaged stages on one node after another, and sorts the errors by what is wrong.
func eachStaged(nodes []string, say func(Staged), stage func(id string) (Staged, error)) error {
	failed := map[string][]string{} // nodes by what is wrong
	var hint string
	for _, id := range nodes {
		s, err := stage(id)
		if err == nil {
			say(s)
			continue
		}
		text := err.Error()
		if e, ok := errors.AsType[*api.Error](err); ok {
			text, hint = e.Message, e.Hint
		}
		failed[text] = append(failed[text], id)
	}
	if len(failed) == 0 {
		return nil
	}
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(failed)) {
		who := failed[text]
		slices.Sort(who)
		parts = append(parts, "node "+strings.Join(who, ", ")+": "+text)
	}
	return &api.Error{Code: api.CodeCheckFailed, Message: strings.Join(parts, "; "), Hint: hint}
}

func (c *Tidal) stage(ctx context.Context, node, sum string, b *Binary) (Staged, error) {
	s := Staged{Node: node}
	a, err := c.address(node)
	if err != nil {
		return s, err
	}
	s.Program, err = c.Client.CheckProgram(ctx, a, sum)
	if b != nil && api.CodeOf(err) == api.CodeNotFound {
		s.Sent = true
		s.Program, err = c.Client.SendProgram(ctx, a, sum, b.Content)
	}
	return s, err
}
