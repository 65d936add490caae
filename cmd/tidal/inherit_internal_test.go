package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidal/node"
)

func environment(entries ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, e := range entries {
			if k, v, _ := strings.Cut(e, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

// TestInherit: what is for another process is not taken, and what is broken is
// said. That a port and a lock do survive, the tests of processes prove.
func TestInherit(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	for _, tc := range []struct {
		env  []string
		want string // of the error; "": nothing is inherited
	}{
		{nil, ""},
		{[]string{inheritEnv + "=pid=1,port=77,lock=78"}, ""},
		{[]string{inheritEnv + "=pid=" + pid + ",port=x,lock=78"}, `descriptor "x" is not one`},
		{[]string{inheritEnv + "=pid=" + pid + ",port=2,lock=78"}, `descriptor "2" is not one`},
		{[]string{systemdPID + "=1", systemdFDs + "=1"}, ""},
		{[]string{systemdPID + "=" + pid, systemdFDs + "=0"}, ""},
		{[]string{systemdPID + "=" + pid, systemdFDs + "=2"}, "systemd passes 2 sockets"},
	} {
		i, err := inherit(environment(tc.env...))
		if tc.want == "" && (err != nil || i.port != nil || i.lock != nil) {
			t.Errorf("%v: %+v, %v", tc.env, i, err)
		}
		if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%v: %v, want %q", tc.env, err, tc.want)
		}
	}
	left := cleanEnviron([]string{"A=1", inheritEnv + "=x", systemdPID + "=1", systemdFDs + "=1", systemdName + "=x", "B=2"})
	if !slices.Equal(left, []string{"A=1", "B=2"}) {
		t.Errorf("for children: %v", left)
	}
}

// TestInheritedPort: a port goes by its descriptor, and is used only for the
// address that it has.
func TestInheritedPort(t *testing.T) {
	for _, tc := range []struct {
		address string
		systemd bool
		want    string // of the error
		same    bool
	}{
		{address: "127.0.0.1:PORT", same: true},
		{address: "localhost:PORT", same: true},
		{address: "127.0.0.1:PORT", systemd: true, same: true},
		{address: "127.0.0.1:0"},
		{address: "127.0.0.1:0", systemd: true, want: "set the two right"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := syscall.Dup(int(f.Fd()))
		if err = errors.Join(err, f.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		port, err := inheritedListener(strconv.Itoa(fd))
		if err != nil {
			t.Fatal(err)
		}
		was := port.Addr().String()
		_, number, _ := net.SplitHostPort(was)
		i := inheritance{port: port, systemd: tc.systemd}
		got, err := i.listen(t.Context(), "tcp", strings.Replace(tc.address, "PORT", number, 1))
		switch {
		case tc.want != "":
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v: %v", tc, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", tc, err)
		default:
			if (got.Addr().String() == was) != tc.same {
				t.Errorf("%+v: listens on %s, inherited %s", tc, got.Addr(), was)
			}
			_ = got.Close()
		}
		if err := i.close(); err != nil {
			t.Errorf("%+v: close: %v", tc, err)
		}
	}
}

// TestNotify: systemd is told in its own words, by the socket that it names.
func TestNotify(t *testing.T) {
	if (&app{env: environment()}).notifier(t.Context()) != nil {
		t.Error("somebody is told without a socket")
	}
	path := filepath.Join(t.TempDir(), "s")
	for _, name := range []string{path, "@tidal-test-" + strconv.Itoa(os.Getpid())} {
		at := name
		if name[0] == '@' {
			at = "\x00" + name[1:]
		}
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
		if err != nil {
			if runtime.GOOS == "linux" {
				t.Fatalf("%s: %v", name, err)
			}
			t.Skipf("needs Linux, whose names need no file: %v", err)
		}
		defer l.Close()
		tell := (&app{env: environment("NOTIFY_SOCKET=" + name), stderr: t.Output()}).notifier(t.Context())
		for n, want := range map[node.Notice]string{
			node.NoticeReady: "READY=1", node.NoticeStopping: "STOPPING=1", node.NoticeRestarting: "RELOADING=1",
		} {
			tell(n)
			if err := l.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 256)
			k, err := l.Read(buf)
			if got, _, _ := strings.Cut(string(buf[:k]), "\n"); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", name, got, err, want)
			}
		}
	}
}

func TestOwnProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "tidal")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	for called, want := range map[string]string{self: self, link: link, "/bin/sh": self, "no-such-program": self} {
		if got, err := ownProgram(called); err != nil || got != want {
			t.Errorf("called %s: %s, %v; want %s", called, got, err, want)
		}
	}
}
