package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// etcdStore is three etcd members with mutual TLS. It speaks gRPC itself, since
// etcd's client package retries. etcd has one raft group: tables are prefixes.
type etcdStore struct {
	procs
	bin   string
	urls  []string
	conns []*grpc.ClientConn
	web   *http.Client
}

func newEtcd(bin string) store { return &etcdStore{bin: bin} }

func (s *etcdStore) start(ctx context.Context, dir string, _ int) error {
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
	s.web = &http.Client{Transport: &http.Transport{TLSClientConfig: conf.Clone(), DisableKeepAlives: true}}
	var members []string
	for i := range nodes {
		members = append(members, name(i)+"=https://"+addrs[nodes+i])
	}
	for i := range nodes {
		client, peer := "https://"+addrs[i], "https://"+addrs[nodes+i]
		s.urls = append(s.urls, client)
		if err := s.spawn(name(i), s.bin, "--name", name(i), "--data-dir", filepath.Join(dir, name(i)),
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-state", "new",
			"--client-cert-auth", "--trusted-ca-file", c.ca, "--cert-file", c.cert, "--key-file", c.key,
			"--peer-client-cert-auth", "--peer-trusted-ca-file", c.ca, "--peer-cert-file", c.cert, "--peer-key-file", c.key,
			"--tls-min-version", "TLS1.3", "--quota-backend-bytes", "8589934592", "--log-level", "warn"); err != nil {
			return err
		}
		conn, err := grpc.NewClient(addrs[i], grpc.WithTransportCredentials(credentials.NewTLS(conf.Clone())), grpc.WithDisableRetry())
		if err != nil {
			return err
		}
		s.conns = append(s.conns, conn)
	}
	for i := range nodes {
		if err := s.until(ctx, "etcd is not ready", func(ctx context.Context) error {
			st, err := pb.NewMaintenanceClient(s.conns[i]).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(true))
			if err == nil && st.Leader == 0 {
				err = fmt.Errorf("%s knows no leader", name(i))
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *etcdStore) can(o op) bool { return o == write || o == read || o == batch || o == restart }

func (s *etcdStore) do(ctx context.Context, o op, r request) error {
	kv := pb.NewKVClient(s.conns[r.node])
	key := fmt.Appendf(nil, "t%d/%s", r.table, r.key)
	switch o {
	case read:
		_, err := kv.Range(ctx, &pb.RangeRequest{Key: key}) // linearizable, as it is by default
		return err
	case batch: // a transaction without conditions
		var txn pb.TxnRequest
		for _, k := range r.keys {
			put := pb.PutRequest{Key: fmt.Appendf(nil, "t%d/%s", r.table, k), Value: r.value}
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &put}})
		}
		_, err := kv.Txn(ctx, &txn)
		return err
	}
	_, err := kv.Put(ctx, &pb.PutRequest{Key: key, Value: r.value})
	return err
}

func (s *etcdStore) restart(ctx context.Context, i int) (time.Duration, error) {
	return s.again(ctx, i, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.urls[i]+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		res, err := s.web.Do(req)
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			err = errors.New(res.Status)
		}
		return errors.Join(err, res.Body.Close())
	})
}

func (s *etcdStore) stop() {
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.procs.stop()
}
