package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/pelletier/go-toml/v2"

	"tidal/node/config"
	"tidal/pki"
)

// fleet is the cluster of `tidal dev` in one folder:
//
//	dev.json            the nodes, their ports and processes
//	dev.lock            held by the dev that starts or attends them
//	certs/              as `tidal certs gen` makes them
//	nodes/ID/tidal.toml, nodes/ID/data/
//	logs/ID.log
type fleet struct {
	dir     string
	state   devState
	lock    *os.File            // nil: only read
	running map[string]*process // started here
	ended   chan processEnd     // each of running, once
}

// devState is dev.json: what stays the same over restarts.
type devState struct {
	Version int       `json:"version"`
	Nodes   []devNode `json:"nodes"`
}

type devNode struct {
	ID   string `json:"id"`
	Port int    `json:"port"`
	PID  int    `json:"pid,omitempty"` // of its last process
}

func (n devNode) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.Port)) }
func (n devNode) url() string     { return "https://" + n.address() }

func (f *fleet) configPath(n devNode) string {
	return filepath.Join(f.dir, "nodes", n.ID, "tidal.toml")
}
func (f *fleet) logPath(n devNode) string { return filepath.Join(f.dir, "logs", n.ID+".log") }
func (f *fleet) cert(parts ...string) string {
	return filepath.Join(append([]string{f.dir, "certs"}, parts...)...)
}

// openFleet locks the folder and reads or makes the list of nodes: want of them,
// or as many as there are, or preset if there are none yet.
func openFleet(dir string, want, preset int) (*fleet, error) {
	if err := ourFolder(dir); err != nil {
		return nil, err
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	f, err := readFleet(dir)
	if errors.Is(err, fs.ErrNotExist) {
		f = &fleet{dir: dir, state: devState{Version: 1}}
		f.state.Nodes, err = newNodes(preset)
	}
	if err == nil && want != 0 && want != len(f.state.Nodes) {
		err = withHint(withCode(exitConfig, fmt.Errorf("the cluster in %s has %d nodes, and --nodes asks for %d", dir, len(f.state.Nodes), want)),
			"leave --nodes out, or take another folder")
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	f.lock = lock
	f.running, f.ended = map[string]*process{}, make(chan processEnd, config.MaxMembers)
	return f, nil
}

// ourFolder makes the folder, and refuses one that holds something else.
func ourFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return withCode(exitConfig, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return withCode(exitConfig, err)
	}
	for _, e := range entries {
		if e.Name() == "dev.lock" {
			return nil
		}
	}
	if len(entries) > 0 {
		return withHint(withCode(exitRefused, fmt.Errorf("%s holds %s, which `tidal dev` did not make", dir, entries[0].Name())),
			"take an empty folder or a new one")
	}
	return nil
}

// lockFolder keeps two dev apart. The lock ends with the process.
func lockFolder(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "dev.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, withCode(exitConfig, err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	err = fmt.Errorf("lock %s: %w", dir, errors.Join(err, lock.Close()))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, withHint(withCode(exitLocked, fmt.Errorf("another `tidal dev` runs in %s", dir)),
			fmt.Sprintf("`tidal dev stop --dir %s` stops its nodes", dir))
	}
	return nil, withCode(exitConfig, err)
}

// readFleet reads the list of nodes without locking the folder.
func readFleet(dir string) (*fleet, error) {
	path := filepath.Join(dir, "dev.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, withHint(withCode(exitConfig, fmt.Errorf("there is no cluster in %s: %w", dir, fs.ErrNotExist)),
			fmt.Sprintf("`tidal dev --dir %s` makes one", dir))
	}
	if err != nil {
		return nil, withCode(exitConfig, err)
	}
	f := &fleet{dir: dir}
	if err := json.Unmarshal(text, &f.state); err != nil {
		return nil, withCode(exitConfig, fmt.Errorf("%s: %w", path, err))
	}
	if f.state.Version != 1 || len(f.state.Nodes) == 0 {
		return nil, withCode(exitConfig, fmt.Errorf("%s: version %d is not one that this program knows", path, f.state.Version))
	}
	return f, nil
}

func (f *fleet) save() error {
	text, err := json.MarshalIndent(f.state, "", "  ")
	if err != nil {
		return err
	}
	return withCode(exitConfig, replaceFile(filepath.Join(f.dir, "dev.json"), append(text, '\n')))
}

// close gives the folder free, also if a child that was just forked holds a copy
// of the descriptor.
func (f *fleet) close() error {
	return errors.Join(syscall.Flock(int(f.lock.Fd()), syscall.LOCK_UN), f.lock.Close())
}

// newNodes gives each node a port that is free now and that, lying below those
// that the system hands out, is likely to be free at the next start too.
func newNodes(n int) ([]devNode, error) {
	const lowest, span = 20000, 10000
	draw, err := rand.Int(rand.Reader, big.NewInt(span))
	if err != nil {
		return nil, err
	}
	nodes := make([]devNode, 0, n)
	for i := 0; i < span && len(nodes) < n; i++ {
		node := devNode{ID: string(rune('a' + len(nodes))), Port: lowest + (int(draw.Int64())+i)%span}
		if free(node.address()) {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) < n {
		return nil, fmt.Errorf("there are no %d free ports between %d and %d", n, lowest, lowest+span)
	}
	return nodes, nil
}

func free(address string) bool {
	l, err := net.Listen("tcp", address) //nolint:noctx // it does not block
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// prepare makes certificates and configurations; what is there is kept or made
// the same.
func (f *fleet) prepare(ctx context.Context) error {
	plan := pki.Plan{Cluster: devContext}
	members := map[string]string{}
	for _, n := range f.state.Nodes {
		plan.Nodes = append(plan.Nodes, pki.Node{ID: n.ID})
		members[n.ID] = n.url()
	}
	if _, err := pki.Gen(ctx, f.cert(), plan, time.Now()); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(f.dir, "logs"), 0o700); err != nil {
		return withCode(exitConfig, err)
	}
	for _, n := range f.state.Nodes {
		text, err := toml.Marshal(config.Config{
			Node:    config.Node{ID: n.ID, Data: filepath.Join(f.dir, "nodes", n.ID, "data"), Listen: n.address(), Advertise: n.url()},
			Disk:    config.Disk{Ballast: "16MiB", Reserve: "64MiB"}, // not a share of somebody's own disk
			Cluster: config.Cluster{Name: devContext, Members: members},
			TLS:     config.TLS{CA: f.cert("bundle.crt"), Cert: f.cert("nodes", n.ID, "tls.crt"), Key: f.cert("nodes", n.ID, "tls.key")},
		})
		if err != nil {
			return err
		}
		text = append([]byte("# Written by `tidal dev` at each start.\n"), text...)
		if err := replaceFile(f.configPath(n), text); err != nil {
			return withCode(exitConfig, fmt.Errorf("write the configuration of node %s: %w", n.ID, err))
		}
	}
	return f.save()
}

// context returns how the operator reaches the cluster.
func (f *fleet) context() clusterContext {
	c := clusterContext{
		CA:   f.cert("bundle.crt"),
		Cert: f.cert("clients", "admin", "tls.crt"),
		Key:  f.cert("clients", "admin", "tls.key"),
	}
	for _, n := range f.state.Nodes {
		c.Endpoints = append(c.Endpoints, n.url())
	}
	return c
}
