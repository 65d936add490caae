package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"tidal/node"
)

// A process that becomes the node's next incarnation by exec finds its port and
// the lock of its data directory by numbers in inheritEnv: "pid=7,port=9,lock=10".
// systemd passes a port by the first descriptor after the standard ones, and says
// so in LISTEN_PID and LISTEN_FDS.
const (
	inheritEnv  = "TIDAL_INHERIT"
	systemdPID  = "LISTEN_PID"
	systemdFDs  = "LISTEN_FDS"
	systemdName = "LISTEN_FDNAMES"
	systemdPort = 3
)

// inheritance is what another process left open for this one.
type inheritance struct {
	port    net.Listener // nil: none
	lock    *os.File     // nil: none
	systemd bool         // the port is systemd's
}

// inherit takes what the environment says is there.
func inherit(env func(string) (string, bool)) (inheritance, error) {
	own := strconv.Itoa(os.Getpid())
	if text, ok := env(inheritEnv); ok {
		given := map[string]string{}
		for word := range strings.SplitSeq(text, ",") {
			k, v, _ := strings.Cut(word, "=")
			given[k] = v
		}
		if given["pid"] != own {
			return inheritance{}, nil // of the process that started this one
		}
		port, err1 := inheritedListener(given["port"])
		lock, err2 := inheritedFile(given["lock"])
		if err := errors.Join(err1, err2); err != nil {
			return inheritance{}, fmt.Errorf("%s=%s: %w", inheritEnv, text, err)
		}
		return inheritance{port: port, lock: lock}, nil
	}
	if pid, _ := env(systemdPID); pid != own {
		return inheritance{}, nil
	}
	switch fds, _ := env(systemdFDs); fds {
	case "", "0":
		return inheritance{}, nil
	case "1":
		port, err := inheritedListener(strconv.Itoa(systemdPort))
		if err != nil {
			return inheritance{}, fmt.Errorf("the socket that systemd passes: %w", err)
		}
		return inheritance{port: port, systemd: true}, nil
	default:
		return inheritance{}, fmt.Errorf("systemd passes %s sockets: a node has one port", fds)
	}
}

func inheritedFile(text string) (*os.File, error) {
	fd, err := strconv.Atoi(text)
	if err != nil || fd < systemdPort {
		return nil, fmt.Errorf("descriptor %q is not one", text)
	}
	syscall.CloseOnExec(fd) // it is this process's, not its children's
	return os.NewFile(uintptr(fd), "inherited"), nil
}

func inheritedListener(text string) (net.Listener, error) {
	f, err := inheritedFile(text)
	if err != nil {
		return nil, err
	}
	l, err := net.FileListener(f) // which has a descriptor of its own
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("descriptor %s: %w", text, err)
	}
	return l, nil
}

// listen is net.ListenConfig.Listen, but for an inherited port of that address.
func (i *inheritance) listen(ctx context.Context, network, address string) (net.Listener, error) {
	if l := i.port; l != nil {
		i.port = nil
		same, err := sameAddress(l.Addr(), address)
		switch {
		case err == nil && same:
			return l, nil
		case err == nil && i.systemd:
			err = fmt.Errorf("systemd passes the socket %s, and node.listen is %s: set the two right", l.Addr(), address)
		}
		// Else the configuration has another port since the incarnation before.
		if err = errors.Join(err, l.Close()); err != nil {
			return nil, err
		}
	}
	return (&net.ListenConfig{}).Listen(ctx, network, address)
}

// sameAddress reports whether a socket is the one that a configured address means.
func sameAddress(have net.Addr, address string) (bool, error) {
	bound, ok := have.(*net.TCPAddr)
	if !ok {
		return false, fmt.Errorf("the inherited socket %s is not one of TCP", have)
	}
	want, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return false, fmt.Errorf("node.listen %s: %w", address, err)
	}
	every := func(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }
	return bound.Port == want.Port && (bound.IP.Equal(want.IP) || every(bound.IP) && every(want.IP)), nil
}

// close closes what nobody took.
func (i *inheritance) close() error {
	var err error
	if i.port != nil {
		err = i.port.Close()
	}
	return err
}

// cleanEnviron is the environment without what is for this process alone.
func cleanEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == inheritEnv || name == systemdPID || name == systemdFDs || name == systemdName
	})
}

// become replaces this process by the program, called as this one was, and hands
// it the files. It returns only if that fails.
func become(program string, args, environ []string, files *node.RestartError) error {
	// A duplicate, unlike the original, survives the exec.
	port, err1 := syscall.Dup(int(files.Port.Fd()))
	lock, err2 := syscall.Dup(int(files.Lock.Fd()))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("keep the port and the lock: %w", err)
	}
	environ = append(cleanEnviron(environ), fmt.Sprintf("%s=pid=%d,port=%d,lock=%d", inheritEnv, os.Getpid(), port, lock))
	if err := syscall.Exec(program, args, environ); err != nil { //nolint:gosec // this program, as it was called
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}
