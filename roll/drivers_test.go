package roll_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

func TestExec(t *testing.T) {
	s := newStage()
	out := filepath.Join(t.TempDir(), "out")
	d := &roll.Exec{Command: "echo {node} {host} {address} $TIDAL_ROLL > " + out, Cluster: s, Limit: 10 * time.Second}
	n := roll.Node{ID: "a", Address: "https://it's.example:8433", Incarnation: "a.1.00000001"}
	if err := d.Restart(t.Context(), n, roll.Hold{Roll: 7, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "a it's.example https://it's.example:8433 7\n" {
		t.Errorf("%q, %v", b, err)
	}
	if !s.claimed["a"] {
		t.Error("the claim was not renewed before the command")
	}
	// An epoch that is over runs nothing.
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	if err := d.Restart(t.Context(), n, roll.Hold{Roll: 7, Epoch: 9}); api.CodeOf(err) != api.CodeStaleEpoch {
		t.Errorf("a stale epoch: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the command ran for a stale epoch")
	}
	d.Command = "echo no such unit; exit 5"
	failed, ok := errors.AsType[*roll.CommandError](d.Restart(t.Context(), n, roll.Hold{Epoch: 1}))
	if !ok || !strings.Contains(failed.Error(), "exit status 5: no such unit") {
		t.Errorf("a command that fails: %v", failed)
	}
	d.Command, d.Limit = "sleep 60", 100*time.Millisecond
	began := time.Now()
	if err := d.Restart(t.Context(), n, roll.Hold{Epoch: 1}); err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("a command without end: %v after %v", err, time.Since(began))
	}
	if got := roll.Preset("systemd-ssh"); !strings.Contains(got, "{host}") || roll.Preset("x") != "x" {
		t.Errorf("the preset is %q", got)
	}
}

// failing is a driver whose command fails, whatever the node does.
type failing struct{ *stage }

func (f failing) Restart(ctx context.Context, n roll.Node, h roll.Hold) error {
	if err := f.stage.Restart(ctx, n, h); err != nil {
		return err
	}
	return &roll.CommandError{Command: "ssh", Output: "broken pipe", Err: errors.New("exit status 255")}
}
