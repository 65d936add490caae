package roll

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The drivers.
const (
	DriverInPlace = "inplace" // the node restarts itself, and keeps its port open
	DriverExec    = "exec"    // a command restarts it
	DriverManual  = "manual"  // somebody does
)

// presetSSH is the command of the preset systemd-ssh.
const presetSSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host} sudo systemctl restart tidal"

// Preset returns the command that a name stands for; another is a command itself.
func Preset(command string) string {
	if command == "systemd-ssh" {
		return presetSSH
	}
	return command
}

// CommandError is a driver's command that failed. Whether the node restarted all
// the same its peers know.
type CommandError struct {
	Command string
	Output  string
	Err     error
}

// Error says what the command said.
func (e *CommandError) Error() string {
	return fmt.Sprintf("%s: %v: %.500s", e.Command, e.Err, strings.TrimSpace(e.Output))
}

// Unwrap returns what ended the command.
func (e *CommandError) Unwrap() error { return e.Err }

// Exec restarts nodes by a command of the shell, in which {node}, {address} and
// {host} stand for the node's id, its URL, and the host in that.
type Exec struct {
	Command string
	Cluster Cluster       // asked for the claim once more before the command is run
	Limit   time.Duration // how long the command may take
}

// Restart implements Driver. The command acts outside of the cluster, so nothing
// else would stop one whose roll is somebody else's by now: the claim is renewed
// right before, which a node grants only to the epoch in force.
func (d *Exec) Restart(ctx context.Context, n Node, h Hold) error {
	if n.Live() {
		if _, err := d.Cluster.Drain(ctx, n.ID, h); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.Limit)
	defer cancel()
	command := d.line(n)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command) //nolint:gosec // the operator's own command
	cmd.WaitDelay = time.Second                               // for what it left running with its output
	cmd.Env = append(os.Environ(), "TIDAL_NODE="+n.ID, "TIDAL_ADDRESS="+n.Address, fmt.Sprintf("TIDAL_ROLL=%d", h.Roll))
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return &CommandError{Command: command, Output: string(out), Err: err}
	}
	return nil
}

// line is the command for a node. Ids and addresses are quoted: they go through a
// shell.
func (d *Exec) line(n Node) string {
	host := n.Address
	if u, err := url.Parse(n.Address); err == nil && u.Hostname() != "" {
		host = u.Hostname()
	}
	return strings.NewReplacer("{node}", quoted(n.ID), "{address}", quoted(n.Address), "{host}", quoted(host)).Replace(d.Command)
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Manual tells somebody to restart a node, and leaves it to them.
type Manual struct {
	Tell func(text string)
}

// Restart implements Driver.
func (d *Manual) Restart(_ context.Context, n Node, _ Hold) error {
	d.Tell(fmt.Sprintf("restart node %s now (%s): it owns nothing", n.ID, n.Address))
	return nil
}
