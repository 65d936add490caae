package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"

	"tidal/node/api"
	"tidal/node/client"
)

func main() {
	endpoints := flag.String("endpoints", "", "URLs of nodes, with commas: https://127.0.0.1:8433,…")
	certs := flag.String("certs", "", "folder that `tidal certs gen` or `tidal dev` made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, strings.Split(*endpoints, ","), *certs)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, endpoints []string, certs string) error {
	secure, err := loadTLS(certs)
	if err != nil {
		return err
	}
	// With Streams, rows go over one connection to each node, straight to the owner of
	// their table. A Client may be used by any number of goroutines: make one, and keep it.
	c, err := client.New(client.Options{Endpoints: endpoints, TLS: secure, Streams: true})
	if err != nil {
		return err
	}
	defer c.Close()
	// It is fine if the table is there already.
	if _, _, err = c.PutTable(ctx, "example", api.TableSettings{}); err != nil {
		return fmt.Errorf("make the table: %w", err)
	}
	if err = writeMany(ctx, c); err != nil {
		return err
	}
	n, err := increment(ctx, c)
	if err != nil {
		return err
	}
	fmt.Println("1,000 rows are written, and this program was run", n, "times")
	return nil
}

// loadTLS makes the TLS configuration of a client with the certificate of an admin.
func loadTLS(dir string) (*tls.Config, error) {
	if dir == "" {
		return nil, nil // a plaintext cluster on this machine
	}
	pem, err := os.ReadFile(dir + "/bundle.crt")
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(dir+"/clients/admin/tls.crt", dir+"/clients/admin/tls.key")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// writeMany writes rows, many at a time: they share what a write costs.
func writeMany(ctx context.Context, c *client.Client) error {
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	for i := range 1000 {
		wg.Go(func() {
			_, err := c.Put(ctx, "example", "row-"+strconv.Itoa(i), []byte("some value"), client.WriteOptions{})
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return explain(err)
		}
	}
	return nil
}

// increment adds one to a counter: it reads, and writes on the condition that nobody
// did in between.
func increment(ctx context.Context, c *client.Client) (n int, err error) {
	for {
		row, err := c.Get(ctx, "example", "counter", client.ReadOptions{})
		o := client.WriteOptions{IfMatch: []api.Version{row.Version}}
		switch {
		case api.CodeOf(err) == api.CodeRowNotFound:
			n, o = 0, client.WriteOptions{IfAbsent: true}
		case err != nil:
			return 0, explain(err)
		default:
			if n, err = strconv.Atoi(string(row.Value)); err != nil {
				return 0, fmt.Errorf("the counter: %w", err)
			}
		}
		_, err = c.Put(ctx, "example", "counter", []byte(strconv.Itoa(n+1)), o)
		if api.CodeOf(err) != api.CodePreconditionFailed { // else somebody was faster
			return n + 1, explain(err)
		}
	}
}

// explain says what an error means for what was asked. The client has sent it again
// already wherever that is safe.
func explain(err error) error {
	var e *api.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrUnreachable):
		return fmt.Errorf("no node could be reached, and nothing was done: %w", err)
	case !errors.As(err, &e):
		return err
	case e.Outcome() == api.OutcomeNone:
		return fmt.Errorf("nothing was done, and it may be tried again later: %w", err)
	case e.Outcome() == api.OutcomeUnknown:
		return fmt.Errorf("it may or may not have been done: look, or send it again with the same WriteOptions.Key: %w", err)
	}
	return fmt.Errorf("it was decided, and trying again changes nothing: %w", err)
}
