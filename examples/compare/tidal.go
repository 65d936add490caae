package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"tidal/node/api"
	"tidal/node/client"
)

// tidalStore is three tidal nodes with mutual TLS, spoken to as any HTTP client
// would.
type tidalStore struct {
	procs
	bin    string
	addrs  []string
	client *http.Client
	native *client.Client // over streams
}

func newTidal(bin string) store { return &tidalStore{bin: bin} }

func (s *tidalStore) start(ctx context.Context, dir string, tables int) (err error) {
	s.dir = dir
	if s.addrs, err = freePorts(nodes); err != nil {
		return err
	}
	conf, err := s.issue(ctx)
	if err != nil {
		return err
	}
	if s.native, err = client.New(client.Options{Endpoints: s.urls(), TLS: conf, Once: true, Streams: true}); err != nil {
		return err
	}
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: conf, MaxIdleConnsPerHost: 1024}}
	for i := range nodes {
		path := filepath.Join(dir, name(i)+".toml")
		if err := os.WriteFile(path, []byte(s.config(i)), 0o600); err != nil {
			return err
		}
		if err := s.spawn(name(i), s.bin, "serve", "--config", path); err != nil {
			return err
		}
	}
	for i := range nodes {
		if err := s.until(ctx, "tidal is not ready", func(ctx context.Context) error {
			return s.call(ctx, i, http.MethodGet, "/health", nil)
		}); err != nil {
			return err
		}
	}
	for t := range tables {
		if err := s.call(ctx, t%nodes, http.MethodPut, fmt.Sprintf("/v1/tables/t%d", t), []byte(`{"replicas":3}`)); err != nil {
			return err
		}
	}
	return nil
}

func (s *tidalStore) urls() (all []string) {
	for _, a := range s.addrs {
		all = append(all, "https://"+a)
	}
	return all
}

func name(i int) string { return fmt.Sprintf("n%d", i) }

func (s *tidalStore) issue(ctx context.Context) (*tls.Config, error) {
	dir := filepath.Join(s.dir, "certs")
	args := []string{"certs", "gen", "--dir", dir, "--cluster", "compare"}
	for i := range nodes {
		args = append(args, "--node", name(i)+"=127.0.0.1")
	}
	if out, err := exec.CommandContext(ctx, s.bin, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("certs gen: %w\n%s", err, out)
	}
	admin := filepath.Join(dir, "clients", "admin")
	return clientTLS(filepath.Join(dir, "bundle.crt"), filepath.Join(admin, "tls.crt"), filepath.Join(admin, "tls.key"))
}

func (s *tidalStore) config(i int) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "[node]\nid = %q\ndata = %q\nlisten = %q\nadvertise = \"https://%s\"\n[cluster]\nname = \"compare\"\n[cluster.members]\n",
		name(i), filepath.Join(s.dir, name(i)), s.addrs[i], s.addrs[i])
	for j := range nodes {
		fmt.Fprintf(&b, "%s = \"https://%s\"\n", name(j), s.addrs[j])
	}
	certs := filepath.Join(s.dir, "certs")
	leaf := filepath.Join(certs, "nodes", name(i))
	fmt.Fprintf(&b, "[tls]\nca = %q\ncert = %q\nkey = %q\n", filepath.Join(certs, "bundle.crt"), filepath.Join(leaf, "tls.crt"), filepath.Join(leaf, "tls.key"))
	return b.String()
}

// call is one attempt: net/http cannot send such a body again.
func (s *tidalStore) call(ctx context.Context, node int, method, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+s.addrs[node]+path, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return err
	}
	req.ContentLength = int64(len(body))
	if len(body) == 0 {
		req.Body = http.NoBody
	}
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(b))
	}
	return err
}

func (s *tidalStore) can(o op) bool { return true }

func (s *tidalStore) do(ctx context.Context, o op, r request) (err error) {
	table := fmt.Sprintf("t%d", r.table)
	path := "/v1/tables/" + table + "/rows"
	switch o {
	case write:
		return s.call(ctx, r.node, http.MethodPut, path+"/"+r.key, r.value)
	case read:
		return s.call(ctx, r.node, http.MethodGet, path+"/"+r.key, nil)
	case streamWrite:
		_, err = s.native.Put(ctx, table, r.key, r.value, client.WriteOptions{})
	case streamRead:
		_, err = s.native.Get(ctx, table, r.key, client.ReadOptions{})
	case batch:
		var body []byte
		for _, c := range changes(r) {
			body = api.AppendChange(body, &c)
		}
		return s.call(ctx, r.node, http.MethodPost, path, body)
	case streamBatch:
		_, err = s.native.Batch(ctx, table, changes(r), client.BatchOptions{})
	}
	return err
}

// changes are the rows of a batch.
func changes(r request) []api.Change {
	all := make([]api.Change, len(r.keys))
	for i, key := range r.keys {
		all[i] = api.Change{Key: key, Value: r.value}
	}
	return all
}

func (s *tidalStore) restart(ctx context.Context, i int) (time.Duration, error) {
	return s.again(ctx, i, func(ctx context.Context) error { return s.call(ctx, i, http.MethodGet, "/health", nil) })
}

func (s *tidalStore) stop() {
	if s.native != nil {
		s.native.Close()
	}
	s.procs.stop()
}
