package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// natsStore is three nats-servers with JetStream that sync each write, and
// mutual TLS. A table is a stream with three file replicas that keeps one message
// a subject, the shape of a key-value bucket. It makes plain requests, since the
// jetstream package retries.
type natsStore struct {
	procs
	bin   string
	conns []*nats.Conn
}

func newNATS(bin string) store { return &natsStore{bin: bin} }

const natsConfig = `server_name: %s
listen: %q
tls { %s }
jetstream { store_dir: %q, sync_interval: always, max_file_store: 60GB, max_memory_store: 1GB }
cluster { name: compare, listen: %q, routes: [%s], tls { %s } }
`

func (s *natsStore) start(ctx context.Context, dir string, tables int) error {
	s.dir = dir
	addrs, err := freePorts(2 * nodes)
	if err != nil {
		return err
	}
	c, err := newCerts(dir)
	if err != nil {
		return err
	}
	conf, err := c.client()
	if err != nil {
		return err
	}
	tls := fmt.Sprintf("cert_file: %q, key_file: %q, ca_file: %q, verify: true, min_version: \"1.3\"", c.cert, c.key, c.ca)
	routes := "nats://" + strings.Join(addrs[nodes:], ", nats://")
	for i := range nodes {
		path := filepath.Join(dir, name(i)+".conf")
		text := fmt.Sprintf(natsConfig, name(i), addrs[i], tls, filepath.Join(dir, name(i)), addrs[nodes+i], routes, tls)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		if err := s.spawn(name(i), s.bin, "-c", path); err != nil {
			return err
		}
	}
	for i := range nodes {
		if err := s.until(ctx, "nats-server is not ready", func(context.Context) error {
			conn, err := nats.Connect("nats://"+addrs[i], nats.NoReconnect(), nats.Secure(conf.Clone()))
			if err == nil {
				s.conns = append(s.conns, conn)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return s.streams(ctx, tables)
}

// streams makes one stream a table and waits until each node can write to it.
func (s *natsStore) streams(ctx context.Context, tables int) error {
	for t := range tables {
		req := fmt.Sprintf(`{"name":"t%d","subjects":["t%d.>"],"retention":"limits","storage":"file","num_replicas":3,`+
			`"max_msgs_per_subject":1,"discard":"new","max_consumers":-1,"max_msgs":-1,"max_bytes":-1}`, t, t)
		if err := s.until(ctx, "stream is not made", func(ctx context.Context) error {
			return s.request(ctx, t%nodes, fmt.Sprintf("$JS.API.STREAM.CREATE.t%d", t), []byte(req))
		}); err != nil {
			return err
		}
		for i := range nodes {
			if err := s.until(ctx, "stream is not writable", func(ctx context.Context) error {
				return s.do(ctx, write, request{node: i, table: t, key: "first"})
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// request is one attempt; an error within the answer is one.
func (s *natsStore) request(ctx context.Context, node int, subject string, data []byte) error {
	m, err := s.conns[node].RequestWithContext(ctx, subject, data)
	if err != nil {
		return err
	}
	var a struct {
		Error *struct {
			Code        int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return err
	}
	if a.Error != nil {
		return fmt.Errorf("nats %d: %s", a.Error.Code, a.Error.Description)
	}
	return nil
}

// Its reads are not linearizable, and its health has a port of its own.
func (s *natsStore) can(o op) bool { return o == write }

func (s *natsStore) do(ctx context.Context, _ op, r request) error {
	return s.request(ctx, r.node, fmt.Sprintf("t%d.%s", r.table, r.key), r.value)
}

func (s *natsStore) restart(context.Context, int) (time.Duration, error) {
	return 0, errors.ErrUnsupported
}

func (s *natsStore) stop() {
	for _, c := range s.conns {
		c.Close()
	}
	s.procs.stop()
}
