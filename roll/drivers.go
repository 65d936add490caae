package roll

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"tidal/node/api"
)

// The drivers.
const (
	DriverInPlace = "inplace" // the node restarts itself, and keeps its port open
	DriverExec    = "exec"    // a command restarts it
	DriverManual  = "manual"  // somebody does
)

// The presets' commands; that to ask systemd for how long it waits for a process to end
// before it kills it goes with the first. Nothing of a node's name is read by a shell at the other
// end, and -- keeps ssh from taking a host for an option.
const (
	presetSSH     = "ssh -o BatchMode=yes -o ConnectTimeout=10 -- {host} sudo systemctl restart tidal"
	presetSSHStop = "ssh -o BatchMode=yes -o ConnectTimeout=10 -- {host} systemctl show --property=TimeoutStopUSec --value tidal"
	// A machine is reached as ID.vm.APP.internal.
	presetFly = `curl -fsS --max-time 60 -X POST -H "Authorization: Bearer $FLY_API_TOKEN"` +
		` "${FLY_API_HOSTNAME:-https://api.machines.dev}"/v1/apps/"$FLY_APP_NAME"/machines/{label}/restart`
)

// Preset returns the command that a name stands for; another is a command itself.
func Preset(command string) string {
	switch command {
	case "systemd-ssh":
		return presetSSH
	case "fly-machines":
		return presetFly
	}
	return command
}

// Exec restarts nodes by a command of the shell, in which {node}, {address}, {host}
// and {label} stand for the node's id, its URL, the host in that, and the first
// label of that host.
type Exec struct {
	Command string
	Cluster Cluster       // asked for the claim once more before the command is run
	Limit   time.Duration // how long the command may take
}

// Restart implements Driver. The command acts outside of the cluster, so nothing
// else would stop one whose roll is somebody else's by now: the claim is renewed
// right before, which a node grants only to the epoch in force.
func (d *Exec) Restart(ctx context.Context, n Node, h Hold) error {
	line, err := lineFor(d.Command, n)
	if err != nil {
		return err
	}
	if n.Live() {
		owned, err := d.Cluster.Drain(ctx, n.ID, h)
		if err != nil {
			return NothingDone(err)
		}
		if owned > n.Owned { // it had run out, and the node has taken tables since
			return &api.Error{Code: api.CodeClaimed, Message: fmt.Sprintf("node %s owns %d tables again", n.ID, owned)}
		}
	}
	// Cut off in the middle it could leave a node stopped, whoever has the roll by then.
	return Shell(context.WithoutCancel(ctx), d.Limit, line, "TIDAL_NODE="+n.ID, "TIDAL_ADDRESS="+n.Address, fmt.Sprintf("TIDAL_ROLL=%d", h.Roll))
}

// lineFor is a command for a node. What stands for the placeholders is harmless in the
// shell here and in one that reads it again elsewhere, so it is inserted bare: quotes
// would stay in a word that the command has quoted. The brackets of an IPv6 address are
// a pattern to a shell, and stand for themselves, since no file is called https://….
func lineFor(command string, n Node) (string, error) {
	host := n.Address
	if u, err := url.Parse(n.Address); err == nil && u.Hostname() != "" {
		host = u.Hostname()
	}
	label, _, _ := strings.Cut(host, ".")
	words := []string{}
	for _, w := range []struct{ name, word string }{{"node", n.ID}, {"host", host}, {"label", label}, {"address", n.Address}} {
		// The brackets of an IPv6 address belong into a URL.
		if err := CheckWord("the "+w.name+" of node "+n.ID, strings.NewReplacer("[", "", "]", "").Replace(w.word)); err != nil {
			return "", err
		}
		words = append(words, "{"+w.name+"}", w.word)
	}
	return strings.NewReplacer(words...).Replace(command), nil
}

// Manual tells somebody to restart a node, and leaves it to them.
type Manual struct {
	Tell func(text string)
}

// Restart implements Driver.
func (d *Manual) Restart(_ context.Context, n Node, _ Hold) error {
	d.Tell(fmt.Sprintf("restart node %s now (%s): it owns nothing", n.ID, n.Address))
	return nil
}
