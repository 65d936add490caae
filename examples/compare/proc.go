package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// procs are the processes of a cluster.
type procs struct {
	dir  string
	cmds []*exec.Cmd
}

// again stops a process in good order, starts it anew, and returns how long that one
// took to be ready.
func (p *procs) again(ctx context.Context, i int, ready func(context.Context) error) (time.Duration, error) {
	old := p.cmds[i]
	if err := old.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	_ = old.Wait() // it was told to end
	began := time.Now()
	if err := p.spawn(name(i), old.Path, old.Args[1:]...); err != nil {
		return 0, err
	}
	last := len(p.cmds) - 1
	p.cmds[i], p.cmds = p.cmds[last], p.cmds[:last]
	err := p.until(ctx, "not ready after a restart", ready)
	return time.Since(began), err
}

// spawn starts one; its output goes to dir/name.log.
func (p *procs) spawn(name, bin string, args ...string) error {
	log, err := os.Create(p.log(name))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmds = append(p.cmds, cmd)
	return nil
}

func (p *procs) log(name string) string { return filepath.Join(p.dir, name+".log") }

func (p *procs) pids() (pids []int) {
	for _, c := range p.cmds {
		pids = append(pids, c.Process.Pid)
	}
	return pids
}

// stop kills all and waits: nothing of a cluster is needed after its measurement.
func (p *procs) stop() {
	for _, c := range p.cmds {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

// until tries f until it succeeds; its error ends with the logs of all nodes.
func (p *procs) until(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		try, stop := context.WithTimeout(ctx, 5*time.Second)
		err := f(try)
		stop()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w\n%s", what, err, p.tails())
		}
	}
}

func (p *procs) tails() string {
	var out strings.Builder
	logs, _ := filepath.Glob(p.log("*"))
	for _, path := range logs {
		b, _ := os.ReadFile(path)
		lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
		fmt.Fprintf(&out, "%s:\n%s\n", filepath.Base(path), bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
	}
	return out.String()
}

// freePorts finds n loopback addresses below the range of outgoing connections.
func freePorts(n int) ([]string, error) {
	var addrs []string
	for range 100 * n {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue
		}
		defer func() { _ = ln.Close() }() // not before all are found, so that all differ
		if addrs = append(addrs, ln.Addr().String()); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1", n)
}

// clientTLS trusts the authority in ca and presents a certificate.
func clientTLS(ca, cert, key string) (*tls.Config, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1"}, nil
}
