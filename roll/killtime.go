package roll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
)

const (
	askKillMost = 20 * time.Second // for a command that asks a supervisor
	forEver     = time.Duration(1<<63 - 1)
)

// CheckKillTime says before anything is stopped whether what the driver has end the
// nodes' processes gives them the time that a stop needs.
func (d *Exec) CheckKillTime(ctx context.Context, nodes []Node) Check {
	c := Check{Name: "kill-time", Level: OK, Detail: fmt.Sprintf("every node is given at least %s to stop", api.StopMost)}
	if d.Command != presetSSH {
		c.Level, c.Detail = Warn, fmt.Sprintf("for how long the command lets a node stop before it kills it is not known: it needs up to %s", api.StopMost)
		return c
	}
	return checkKillTime(ctx, presetSSHStop, nodes)
}

// checkKillTime asks for each node by a command of the shell.
func checkKillTime(ctx context.Context, ask string, nodes []Node) Check {
	c := Check{Name: "kill-time", Level: OK, Detail: fmt.Sprintf("every node is given at least %s to stop", api.StopMost)}
	var mu sync.Mutex
	var short, unknown []string
	var g errgroup.Group
	g.SetLimit(asksAtOnce)
	for _, n := range nodes {
		g.Go(func() error {
			given, err := killTime(ctx, ask, n)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				unknown = append(unknown, fmt.Sprintf("%s (%v)", n.ID, err))
			case given < api.StopMost:
				short = append(short, fmt.Sprintf("%s after %s", n.ID, given))
			}
			return nil
		})
	}
	_ = g.Wait() // the functions return no errors
	slices.Sort(short)
	slices.Sort(unknown)
	switch {
	case len(short) > 0:
		c.Level, c.Detail = Block, fmt.Sprintf("a node needs up to %s to stop, and systemd would kill %s", api.StopMost, names(short))
		c.Hint = "set TimeoutStopSec=30s in the unit, as in examples/systemd"
	case len(unknown) > 0:
		c.Level, c.Detail, c.Hint = Block, "systemd cannot be asked how long it waits for a node to stop: "+names(unknown), "the command that restarts the nodes goes the same way: see that it works"
	}
	return c
}

func killTime(ctx context.Context, ask string, n Node) (time.Duration, error) {
	line, err := lineFor(ask, n)
	if err != nil {
		return 0, err
	}
	out, err := Process{Argv: []string{"/bin/sh", "-c", line}, Limit: askKillMost}.Run(ctx)
	if err != nil {
		return 0, err
	}
	return timeSpan(strings.TrimSpace(out))
}

// timeSpan reads a time as systemctl show writes it: "1min 30s", "infinity".
func timeSpan(text string) (time.Duration, error) {
	if text == "infinity" {
		return forEver, nil
	}
	units := map[string]time.Duration{
		"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour,
		"d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
	}
	var total time.Duration
	for word := range strings.FieldsSeq(text) {
		digits := strings.TrimRight(word, "abcdefghijklmnopqrstuvwxyz")
		n, err := strconv.ParseFloat(digits, 64)
		unit, known := units[word[len(digits):]]
		if err != nil || !known {
			return 0, fmt.Errorf("%.50q is no time of systemd", text)
		}
		total += time.Duration(n * float64(unit))
	}
	if text == "" {
		return 0, errors.New("it says nothing: is there a unit tidal?")
	}
	return total, nil
}
