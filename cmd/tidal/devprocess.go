package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tidal/node/client"
	"tidal/node/config"
)

// devLook is how often the processes and their readiness are looked at.
const devLook = 50 * time.Millisecond

// process is a node that this program started.
type process struct {
	node     devNode
	log      string // its file
	logStart int64  // where this run begins in it
}

// processEnd is a node's process that ended.
type processEnd struct {
	*process
	err error // nil: exit code 0
}

// text tells the user about the end: that it happened, and unless it was asked
// for, the last lines of the log.
func (e processEnd) text() string {
	if e.err == nil {
		return fmt.Sprintf("node %s stopped", e.node.ID)
	}
	return fmt.Sprintf("node %s ended: %v\n%s", e.node.ID, e.err, e.tail())
}

// tail returns the last lines that the process wrote, under the file's path.
func (p *process) tail() string {
	const lines = 15
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text[min(p.logStart, int64(len(text))):])
	all := bytes.Split(text, []byte("\n"))
	all = all[max(0, len(all)-lines):]
	return fmt.Sprintf("the end of %s:\n  %s", p.log, bytes.Join(all, []byte("\n  ")))
}

// start starts the nodes that do not run.
func (f *fleet) start(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range f.state.Nodes {
		n := &f.state.Nodes[i]
		if f.runs(*n) {
			continue
		}
		p, err := f.startNode(ctx, program, n)
		if err != nil {
			return withCode(exitConfig, fmt.Errorf("start node %s: %w", n.ID, err))
		}
		f.running[n.ID] = p
		// At once, so that `dev stop` finds it whatever becomes of this program.
		if err := f.save(); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) startNode(ctx context.Context, program string, n *devNode) (*process, error) {
	log, err := os.OpenFile(f.logPath(*n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := log.Stat()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p := &process{log: f.logPath(*n), logStart: info.Size()}
	// The node outlives this program, or is asked to stop: it is never killed with
	// it. So it has a session of its own, which Ctrl-C does not reach.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "serve", "--config", f.configPath(*n)) //nolint:gosec // this program itself
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = nodeEnviron(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	n.PID = cmd.Process.Pid
	p.node = *n
	// Ends with the process; with --detach it ends with this program.
	go func() {
		err := cmd.Wait()
		f.ended <- processEnd{process: p, err: errors.Join(err, log.Close())}
	}()
	return p, nil
}

// nodeEnviron leaves out what would override the node's file.
func nodeEnviron(environ []string) []string {
	return slices.DeleteFunc(environ, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.ContainsFunc(config.Keys(), func(k config.Key) bool { return k.Env() == name })
	})
}

// waitReady returns when every node says that it is ready.
func (f *fleet) waitReady(ctx context.Context, cl *client.Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, devReady, errNotReady)
	defer cancel()
	look := time.NewTicker(devLook)
	defer look.Stop()
	for {
		waiting, why := notReady(ctx, cl, f.state.Nodes)
		if len(waiting) == 0 {
			return nil
		}
		select {
		case end := <-f.ended:
			delete(f.running, end.node.ID)
			return withCode(exitConfig, errors.New(end.text()))
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errNotReady) {
				return ctx.Err()
			}
			n := waiting[0]
			return withHint(withCode(exitNotReady, fmt.Errorf("node %s is not ready after %s: %s", n.ID, devReady, why)),
				"its log is "+f.logPath(n))
		case <-look.C:
		}
	}
}

var errNotReady = errors.New("the nodes are not ready")

// notReady returns those of the nodes that are not ready, and what the first of
// them lacks.
func notReady(ctx context.Context, cl *client.Client, nodes []devNode) (waiting []devNode, why string) {
	for _, n := range nodes {
		h, err := cl.Health(ctx, n.url())
		if err == nil && h.Status == "ok" {
			continue
		}
		waiting = append(waiting, n)
		switch {
		case why != "":
		case err != nil:
			why = err.Error()
		case len(h.Reasons) > 0:
			why = h.Reasons[0].Detail
		default:
			why = h.Status
		}
	}
	return waiting, why
}

// stop asks every node that runs to stop, all at once, and waits for them.
func (f *fleet) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, devStop)
	defer cancel()
	for _, pid := range f.runningPIDs() {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop process %d: %w", pid, err)
		}
	}
	look := time.NewTicker(devLook)
	defer look.Stop()
	for {
		left := f.runningPIDs()
		if len(left) == 0 {
			return f.stopped()
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return withHint(fmt.Errorf("processes %v have not stopped yet: %w", left, ctx.Err()), "their logs are in "+f.logPath(devNode{ID: "*"}))
		}
	}
}

// stopped returns what the nodes that were started here ended with.
func (f *fleet) stopped() error {
	var problems []error
	for range f.running {
		if end := <-f.ended; end.err != nil {
			problems = append(problems, errors.New(end.text()))
		}
	}
	f.running = nil
	return errors.Join(problems...)
}

// runningPIDs returns the processes of the nodes that run.
func (f *fleet) runningPIDs() []int {
	var pids []int
	for _, n := range f.state.Nodes {
		if f.runs(n) {
			pids = append(pids, n.PID)
		}
	}
	return pids
}

func (f *fleet) allRun() bool { return len(f.runningPIDs()) == len(f.state.Nodes) }

// runs reports whether the node's last process is alive. Process ids are used
// again, so it must also be one that was started with the node's file.
func (f *fleet) runs(n devNode) bool {
	return n.PID != 0 && strings.Contains(commandLine(n.PID), f.configPath(n))
}

// commandLine returns how a process was called, "" if there is none.
func commandLine(pid int) string {
	if text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err == nil {
		return strings.ReplaceAll(string(text), "\x00", " ")
	}
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		return "" // Linux, so there is no such process
	}
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output() //nolint:gosec,noctx // a number; it does not block
	if err != nil {
		return ""
	}
	return string(out)
}
