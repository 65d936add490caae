package roll_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

func TestExec(t *testing.T) {
	s := newStage()
	out := filepath.Join(t.TempDir(), "out")
	d := &roll.Exec{Command: "echo {node} {host} {address} $TIDAL_ROLL > " + out, Cluster: s, Limit: 10 * time.Second}
	n := roll.Node{ID: "a", Address: "https://it.example:8433", Incarnation: "a.1.00000001"}
	if err := d.Restart(t.Context(), n, roll.Hold{Roll: 7, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "a it.example https://it.example:8433 7\n" {
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
	// Nor does a claim that had run out: the node has taken a table since.
	late := &roll.Exec{Command: d.Command, Cluster: owning{s}, Limit: d.Limit}
	if err := late.Restart(t.Context(), n, roll.Hold{Roll: 7, Epoch: 1}); api.CodeOf(err) != api.CodeClaimed {
		t.Errorf("a claim that had run out: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the command ran for a node that owns tables")
	}
	d.Command = "echo no such unit; exit 5"
	failed, ok := errors.AsType[*roll.CommandError](d.Restart(t.Context(), n, roll.Hold{Epoch: 1}))
	if !ok || !strings.Contains(failed.Error(), "exit status 5: no such unit") {
		t.Errorf("a command that fails: %v", failed)
	}
	// Somebody takes the roll while the command is under way: it goes on to its end.
	taken, take := context.WithCancel(t.Context())
	d.Command = "echo begun > " + out + "; sleep 0.3; echo ended > " + out
	time.AfterFunc(50*time.Millisecond, take)
	if err := d.Restart(taken, n, roll.Hold{Epoch: 1}); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "ended\n" {
		t.Errorf("%q, %v", b, err)
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

// owning is a stage whose nodes own a table when they are drained.
type owning struct{ *stage }

func (owning) Drain(context.Context, string, roll.Hold) (int, error) { return 1, nil }

// TestExecWords: what stands for a placeholder is a word in the shell here, and in one
// that reads it again; others get into no command.
func TestExecWords(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	d := &roll.Exec{Command: "sh -c 'echo {node} {host} {label} {address}' > " + out, Cluster: newStage(), Limit: 10 * time.Second}
	n := roll.Node{ID: "a", Address: "https://m1.vm.app.internal:8433"}
	if err := d.Restart(t.Context(), n, roll.Hold{}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "a m1.vm.app.internal m1 https://m1.vm.app.internal:8433\n" {
		t.Errorf("%q, %v", b, err)
	}
	n.Address = "https://[fd00:7::1]:8433"
	d.Command = `echo "x-{node}" 'y-{host}' {label}-z "{address}" {address} > ` + out
	if err := d.Restart(t.Context(), n, roll.Hold{}); err != nil {
		t.Errorf("an IPv6 address: %v", err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "x-a y-fd00:7::1 fd00:7::1-z https://[fd00:7::1]:8433 https://[fd00:7::1]:8433\n" {
		t.Errorf("in quotes and without: %q, %v", b, err)
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []roll.Node{
		{ID: "a", Address: "https://-oProxyCommand=x:8433"},
		{ID: "a", Address: "https://a;reboot"},
		{ID: "a", Address: "https://it's.example"},
		{ID: "a", Address: "$(reboot)"},
		{ID: "a b", Address: "https://a"},
		{ID: "a", Address: ""},
		{ID: "a", Address: "https://a/x?y&z"},
	} {
		if err := d.Restart(t.Context(), bad, roll.Hold{}); err == nil {
			t.Errorf("%+v gets into a command", bad)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a command was run")
	}
}

// TestFlyPreset: the hosting API is asked, with the token, for the machine that the
// host names; an answer that is no 2xx is a failure.
func TestFlyPreset(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl, which is not installed")
	}
	got := make(chan string, 2)
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
		if asked.Add(1) > 1 {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	defer srv.Close()
	t.Setenv("FLY_API_HOSTNAME", srv.URL)
	t.Setenv("FLY_API_TOKEN", "t k")
	t.Setenv("FLY_APP_NAME", "app")
	d := &roll.Exec{Command: roll.Preset("fly-machines"), Cluster: newStage(), Limit: 30 * time.Second}
	n := roll.Node{ID: "a", Address: "https://148e.vm.app.internal:8433"}
	if err := d.Restart(t.Context(), n, roll.Hold{}); err != nil {
		t.Fatal(err)
	}
	if call := <-got; call != "POST /v1/apps/app/machines/148e/restart Bearer t k" {
		t.Errorf("asked was %s", call)
	}
	if err := d.Restart(t.Context(), n, roll.Hold{}); err == nil || !strings.Contains(err.Error(), "409") {
		t.Errorf("a conflict: %v", err)
	}
}

// TestLimit: a command that is out of time ends with all that it started; what it
// wrote last is kept.
func TestLimit(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	began := time.Now()
	err := roll.Shell(t.Context(), 300*time.Millisecond, `trap '' TERM; sleep 61 & echo $! > "$OUT"; yes | head -c 200000; echo; echo here; wait; sleep 61`, "OUT="+pid)
	failed, ok := errors.AsType[*roll.CommandError](err)
	if !ok || failed.Exit() != "it did not end within 300ms: here" || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	b, readErr := os.ReadFile(pid)
	child, numberErr := strconv.Atoi(strings.TrimSpace(string(b)))
	if readErr != nil || numberErr != nil {
		t.Fatal(readErr, numberErr)
	}
	for until := time.Now().Add(10 * time.Second); ; {
		stat, statErr := os.ReadFile(filepath.Join("/proc", strconv.Itoa(child), "stat"))
		if statErr != nil || strings.Contains(string(stat), ") Z ") { // ended, and perhaps waited for by nobody
			break
		}
		if time.Now().After(until) {
			t.Fatal("what it started runs still")
		}
		<-time.After(10 * time.Millisecond)
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
