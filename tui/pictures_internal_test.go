package tui

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/pki"
)

// write writes rows of a table, more and fewer of them as time goes by.
func write(ctx context.Context, src *client.Client, table string, n int) {
	for i := 0; ctx.Err() == nil; i++ {
		_, _ = src.Put(ctx, table, "row-"+strconv.Itoa(i%50), []byte("value"), client.WriteOptions{}) // some fail, that is the picture
		wave := 1.3 + math.Sin(float64(i)/(25+10*float64(n)))
		select {
		case <-time.After(time.Duration(wave * float64(40+30*n) * float64(time.Millisecond))):
		case <-ctx.Done():
		}
	}
}

// TestPictures draws the pictures of docs/top.md from a real cluster, as
// `make pictures` starts it: TIDAL_PICTURES names its directory.
func TestPictures(t *testing.T) {
	dir := os.Getenv("TIDAL_PICTURES")
	if dir == "" {
		t.Skip("on demand: make pictures")
	}
	var dev struct {
		Nodes []struct {
			Port int `json:"port"`
			PID  int `json:"pid"`
		} `json:"nodes"`
	}
	b, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err == nil {
		err = json.Unmarshal(b, &dev)
	}
	if err != nil {
		t.Fatal(err)
	}
	admin := filepath.Join(dir, "certs", "clients", "admin")
	pair, err := pki.LoadClient(pki.Files{
		CA: filepath.Join(dir, "certs", "bundle.crt"), Cert: filepath.Join(admin, "tls.crt"), Key: filepath.Join(admin, "tls.key"),
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := client.Options{TLS: pair.NodeTLS("")}
	for _, n := range dev.Nodes {
		o.Endpoints = append(o.Endpoints, "https://127.0.0.1:"+strconv.Itoa(n.Port))
	}
	src, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := newFeed(src, "prod", DefaultInterval)
	f.run(ctx)
	var writers sync.WaitGroup
	defer func() {
		cancel()
		f.tasks.Wait()
		writers.Wait()
	}()
	for i, name := range []string{"orders", "sessions", "users", "carts", "invoices", "audit", "prices", "stock", "mail", "search"} {
		if _, _, err = src.PutTable(ctx, name, api.TableSettings{}); err != nil {
			t.Fatal(err)
		}
		writers.Go(func() { write(ctx, src, name, i) })
	}
	m := screenOf(t, f, "dark", false, 110, 26)
	m.now = time.Now
	watch := func(d time.Duration, keys ...string) {
		m.press(keys...)
		for end := time.Now().Add(d); time.Now().Before(end); {
			<-time.After(frameEvery)
			m.Update(tickMsg{})
		}
	}
	shoot := func(name string) {
		path := filepath.Join("..", "docs", "img", name+".svg")
		if err = os.WriteFile(path, []byte(svg(strings.Split(m.View(), "\n"), m.w, strings.Contains(name, "light"))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	watch(65*time.Second, "2", "s", "s", "s", "s", "s", "s", "s", "r", "j", "j") // until a minute of writes can be seen
	shoot("top-tables")
	watch(time.Second, "1")
	shoot("top-nodes")
	watch(time.Second, "2")
	watch(time.Second, "enter")
	shoot("top-table")
	m.press("o", "tab")
	shoot("top-handover")
	m.press("esc")
	watch(time.Second, "1", "d")
	shoot("top-drain")
	m.press("esc")
	last := dev.Nodes[len(dev.Nodes)-1]
	defer func() { _ = syscall.Kill(last.PID, syscall.SIGCONT) }() // whatever happens
	if err = syscall.Kill(last.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	watch(6 * time.Second)
	shoot("top-trouble")
	watch(time.Second, "3")
	shoot("top-events")
	if err = syscall.Kill(last.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	m.th, err = newTheme("light", false)
	if err != nil {
		t.Fatal(err)
	}
	watch(8*time.Second, "1")
	shoot("top-light")
	m.Update(tea.WindowSizeMsg{Width: 40, Height: 10})
	shoot("top-light-small")
}
