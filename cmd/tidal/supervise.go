package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tidal/node"
)

const (
	checkMost   = 10 * time.Second // for `serve --check` of what a restart would run
	checkOutput = 4 << 10          // bytes of its output that are shown
)

// ownProgram returns the path by which this process was called, so that a link
// that is turned to another release is followed at a restart, or else its file.
func ownProgram(argv0 string) (string, error) {
	file, err := os.Executable()
	if err != nil {
		return "", err
	}
	called, err := exec.LookPath(argv0)
	if err != nil {
		return file, nil //nolint:nilerr // called by another name than its own
	}
	if called, err = filepath.Abs(called); err != nil {
		return "", err
	}
	a, err1 := os.Stat(called) //nolint:gosec // this program, as it was called
	b, err2 := os.Stat(file)
	if err1 != nil || err2 != nil || !os.SameFile(a, b) {
		return file, nil //nolint:nilerr // likewise
	}
	return called, nil
}

// checkProgram runs the program's `serve --check`, called as this process was.
// Its error is what that said.
func checkProgram(ctx context.Context, program string, args, environ []string) error {
	_, err := ask(ctx, program, environ, append([]string{"--check"}, args[min(1, len(args)):]...)...)
	return err
}

// askedNice is the priority of programs that are asked: the requests that this one
// answers come first.
const askedNice = 10

// ask runs a program and returns what it writes on stdout. Its error is what it wrote
// on stderr.
func ask(ctx context.Context, program string, environ []string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, checkMost)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // this program, or one that an admin sent
	cmd.Env = cleanEnviron(environ)
	cmd.WaitDelay = time.Second
	var answer, out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &answer, &out
	err := cmd.Start()
	if err == nil {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, askedNice) // it may have ended
		err = cmd.Wait()
	}
	if err == nil {
		return answer.Bytes(), nil
	}
	said := strings.TrimPrefix(strings.TrimSpace(out.String()), "tidal: ")
	if len(said) > checkOutput {
		said = said[:checkOutput] + "…"
	}
	if said == "" {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return nil, fmt.Errorf("%s (%s: %w)", said, program, err)
}

// notifier returns what tells systemd about the node, by the socket that it names
// in NOTIFY_SOCKET. See sd_notify(3).
func (a *app) notifier(ctx context.Context) func(node.Notice) {
	path, ok := a.env("NOTIFY_SOCKET")
	if !ok || path == "" {
		return nil
	}
	return func(n node.Notice) {
		var state string
		switch n {
		case node.NoticeReady:
			state = "READY=1\nSTATUS=serving"
		case node.NoticeStopping:
			state = "STOPPING=1\nSTATUS=handing over, then stopping"
		case node.NoticeRestarting:
			state = "RELOADING=1\nSTATUS=restarting in place"
		default:
			return
		}
		if err := sendNotice(ctx, path, state); err != nil {
			a.say("tidal: tell systemd: %v", err)
		}
	}
}

func sendNotice(ctx context.Context, path, state string) error {
	if strings.HasPrefix(path, "@") { // a name without a file, in Linux's way
		path = "\x00" + path[1:]
	}
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.WithoutCancel(ctx), "unixgram", path)
	if err != nil {
		return err
	}
	_, err = io.WriteString(c, state)
	return errors.Join(err, c.Close())
}
