package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestForeignProcess proves that a process id that now belongs to somebody else
// is not taken for a node, and so never stopped.
func TestForeignProcess(t *testing.T) {
	f := &fleet{dir: t.TempDir(), state: devState{Nodes: []devNode{{ID: "a", PID: os.Getpid()}, {ID: "b"}}}}
	if pids := f.runningPIDs(); len(pids) > 0 {
		t.Errorf("processes %v are taken for nodes", pids)
	}
	if !strings.Contains(commandLine(os.Getpid()), filepath.Base(os.Args[0])) {
		t.Errorf("this process is called %q", commandLine(os.Getpid()))
	}
	if got := commandLine(1 << 30); got != "" {
		t.Errorf("no process is called %q", got)
	}
}

func TestNodeEnviron(t *testing.T) {
	got := nodeEnviron([]string{"PATH=/bin", "TIDAL_NODE_ID=x", "TIDAL_TLS_CA=y", "TIDAL_FAULTS=z", "TIDAL_NODE_IDS=w"})
	if want := []string{"PATH=/bin", "TIDAL_FAULTS=z", "TIDAL_NODE_IDS=w"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNewNodesAvoidTakenPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if free(l.Addr().String()) {
		t.Error("a port that is taken is called free")
	}
	nodes, err := newNodes(5)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for i, n := range nodes {
		if n.ID != string("abcde"[i]) || seen[n.Port] || n.Port < 20000 || n.Port >= 30000 {
			t.Errorf("nodes %v", nodes)
		}
		seen[n.Port] = true
	}
}

func TestTailBeginsWithThisRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	before := "of the run before\n"
	if err := os.WriteFile(path, []byte(before+strings.Repeat("old\n", 20)+strings.Repeat("new\n", 15)), 0o600); err != nil {
		t.Fatal(err)
	}
	tail := (&process{log: path, logStart: int64(len(before))}).tail()
	if strings.Contains(tail, "old") || strings.Count(tail, "new") != 15 {
		t.Errorf("the tail is\n%s", tail)
	}
	tail = (&process{log: path, logStart: int64(len(before) + 80 + 56)}).tail()
	if strings.Count(tail, "new") != 1 {
		t.Errorf("the tail is\n%s", tail)
	}
}

// TestSecondSignal proves that it is the second signal that stops at once. It
// is not parallel, since signals are the whole process's.
func TestSecondSignal(t *testing.T) {
	stopNow, done := secondSignal()
	defer done()
	for i := range 2 {
		select {
		case <-stopNow:
			t.Fatalf("stopped after %d signals", i)
		default:
		}
		if err := syscall.Kill(os.Getpid(), []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}[i]); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-stopNow:
	case <-time.After(10 * time.Second):
		t.Error("two signals did not stop it")
	}
}
