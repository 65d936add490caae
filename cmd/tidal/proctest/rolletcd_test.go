package proctest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tidal/roll"
)

// etcds is a cluster of three etcd under a supervisor that starts again what ends, as
// systemd does.
type etcds struct {
	dir     string
	bin     string
	ports   []string // of clients, then of peers
	members string
	away    time.Duration // before one that ended is started again

	mu      sync.Mutex
	procs   map[string]*exec.Cmd
	resting map[string]bool // not to be started again
	ended   chan struct{}
	over    sync.WaitGroup
}

func etcdIDs() []string { return []string{"n1", "n2", "n3"} }

func newEtcds(t *testing.T, away time.Duration) *etcds {
	t.Helper()
	e := &etcds{
		dir: t.TempDir(), bin: foreign(t, "etcd"), ports: freePorts(t, 6), away: away,
		procs: map[string]*exec.Cmd{}, resting: map[string]bool{}, ended: make(chan struct{}),
	}
	var members []string
	for i, id := range etcdIDs() {
		members = append(members, id+"=http://"+e.ports[3+i])
	}
	e.members = strings.Join(members, ",")
	for i, id := range etcdIDs() {
		e.over.Go(func() { e.supervise(i, id) })
	}
	t.Cleanup(func() {
		close(e.ended)
		e.mu.Lock()
		for _, p := range e.procs {
			_ = p.Process.Kill()
		}
		e.mu.Unlock()
		e.over.Wait()
		if t.Failed() {
			for _, id := range etcdIDs() {
				b, _ := os.ReadFile(filepath.Join(e.dir, id+".log"))
				t.Logf("%s:\n%s", id, b[max(0, len(b)-2000):])
			}
		}
	})
	for i := range etcdIDs() {
		eventually(t, 60*time.Second, func() error {
			_, err := e.post(i, "/v3/kv/put", `{"key":"YQ==","value":"YQ=="}`)
			return err
		})
	}
	return e
}

// supervise keeps a member running.
func (e *etcds) supervise(i int, id string) {
	for first := true; ; first = false {
		away := e.away
		if first {
			away = 0
		}
		select {
		case <-e.ended:
			return
		case <-time.After(away):
		}
		e.mu.Lock()
		rests := e.resting[id]
		e.mu.Unlock()
		if rests {
			continue
		}
		log, err := os.OpenFile(filepath.Join(e.dir, id+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return
		}
		cmd := exec.Command(e.bin, "--name", id, "--data-dir", filepath.Join(e.dir, id),
			"--listen-client-urls", "http://"+e.ports[i], "--advertise-client-urls", "http://"+e.ports[i],
			"--listen-peer-urls", "http://"+e.ports[3+i], "--initial-advertise-peer-urls", "http://"+e.ports[3+i],
			"--initial-cluster", e.members, "--initial-cluster-state", "new")
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, dieWithUs()
		if err = cmd.Start(); err != nil {
			_ = log.Close()
			return
		}
		_ = os.WriteFile(filepath.Join(e.dir, id+".pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
		e.mu.Lock()
		e.procs[id] = cmd
		e.mu.Unlock()
		_ = cmd.Wait()
		_ = log.Close()
	}
}

func (e *etcds) rest(id string, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resting[id] = on
}

func (e *etcds) post(i int, path, body string) ([]byte, error) {
	return postEtcd(&http.Transport{DisableKeepAlives: true}, "http://"+e.ports[i]+path, body)
}

// leader is the member that leads.
func (e *etcds) leader(t *testing.T) string {
	t.Helper()
	for i, id := range etcdIDs() {
		b, err := e.post(i, "/v3/maintenance/status", "{}")
		var s struct {
			Header struct {
				MemberID string `json:"member_id"`
			}
			Leader string
		}
		if err = errors.Join(err, json.Unmarshal(b, &s)); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if s.Header.MemberID == s.Leader {
			return id
		}
	}
	return "nobody"
}

// recipe returns the operator's file of docs/rolling.md for this cluster: all of it as
// it stands there, but for where the nodes are.
func (e *etcds) recipe(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "rolling.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```toml\n(version = 1\n\n\\[clusters\\.etcd\\]\n.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/rolling.md has no recipe for etcd")
	}
	text := string(found[1])
	i := strings.Index(text, "[clusters.etcd.nodes.n1]")
	if i < 0 {
		t.Fatal("the recipe has no nodes")
	}
	text = strings.ReplaceAll(text[:i], "http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379",
		"http://"+strings.Join(e.ports[:3], ",http://"))
	for i, id := range etcdIDs() {
		host, port, _ := net.SplitHostPort(e.ports[i])
		text += fmt.Sprintf("[clusters.etcd.nodes.%s]\nhost = %q\nport = %s\npid = %q\n\n", id, host, port, filepath.Join(e.dir, id+".pid"))
	}
	path := filepath.Join(e.dir, "config.toml")
	file(t, path, text, 0o600)
	return path
}

// watchDown notes how many members took no connection in at once, at most.
func (e *etcds) watchDown(stop <-chan struct{}) int {
	most := 0
	for {
		select {
		case <-stop:
			return most
		case <-time.After(10 * time.Millisecond):
		}
		down := 0
		for i := range etcdIDs() {
			conn, err := net.DialTimeout("tcp", e.ports[i], time.Second)
			if err != nil {
				down++
				continue
			}
			_ = conn.Close()
		}
		most = max(most, down)
	}
}

// roll runs `tidal roll` with arguments to its end.
func (e *etcds) roll(t *testing.T, config string, args ...string) (int, []byte, roll.Report) {
	t.Helper()
	cmd := exec.Command(binary(t), append([]string{"roll", "--cluster", "etcd"}, args...)...)
	cmd.Env = append(cleanEnv(), "TIDAL_CONFIG="+config, "PATH="+e.etcdctl(t)+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = dieWithUs()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	var r roll.Report
	if lines := bytes.Split(bytes.TrimSpace(stdout.Bytes()), []byte("\n")); len(lines) > 0 {
		_ = json.Unmarshal(lines[len(lines)-1], &r) // other forms have no report
	}
	return cmd.ProcessState.ExitCode(), append(stderr.Bytes(), stdout.Bytes()...), r
}

// etcdctl returns a folder with an etcdctl that notes how it was called.
func (e *etcds) etcdctl(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(e.dir, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file(t, filepath.Join(dir, "etcdctl"), fmt.Sprintf("#!/bin/sh\necho \"$@\" >> %s\nexec %s \"$@\"\n", filepath.Join(e.dir, "etcdctl.log"), foreign(t, "etcdctl")), 0o755)
	return dir
}

// moves returns the calls by which the lead was moved.
func (e *etcds) moves(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(e.dir, "etcdctl.log"))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^.* move-leader .*$`).FindAllString(string(b), -1)
}

// TestRollEtcdTooMany is the control of TestRollEtcd: told that one member is enough,
// the roll takes two at once, and both the watch and the canary must notice.
func TestRollEtcdTooMany(t *testing.T) {
	e := newEtcds(t, 5*time.Second)
	config := e.recipe(t)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	file(t, config, strings.Replace(string(text), `kind = "generic"`, "kind = \"generic\"\nquorum = 1", 1), 0o600)
	stop, down := make(chan struct{}), make(chan int, 1)
	go func() { down <- e.watchDown(stop) }()
	code, out, report := e.roll(t, config, "--yes", "--max-unavailable", "2", "--settle", "1s", "-o", "json")
	close(stop)
	if most := <-down; most < 2 {
		t.Errorf("%d members were down at once: the watch does not see it", most)
	}
	if code != 8 || report.Canary == nil || report.Refused == 0 || len(report.Canary.During.Failures) == 0 {
		t.Errorf("exit %d: the canary did not see it\n%s", code, out)
	}
	t.Logf("canary: %+v", report.Canary)
}

// TestRollEtcd rolls three etcd by the recipe of docs/rolling.md, under writers: no
// two are down at once, a member that does not come back pauses the roll, nothing that
// was acknowledged is lost, and the report shows what the canary met.
func TestRollEtcd(t *testing.T) {
	e := newEtcds(t, 100*time.Millisecond)
	config := e.recipe(t)
	run := func(args ...string) (int, []byte, roll.Report) { return e.roll(t, config, args...) }
	code, out, _ := run("plan")
	if code != 0 || !bytes.Contains(out, []byte("move-leader")) || !bytes.Contains(out, []byte("kill -TERM $(cat ")) || !bytes.Contains(out, []byte("table-quorum  unknown")) {
		t.Fatalf("plan: exit %d\n%s", code, out)
	}
	t.Logf("plan:\n%s", out)

	var planned roll.Plan
	code, out, _ = run("plan", "-o", "json")
	if err := json.Unmarshal(out, &planned); err != nil || code != 0 {
		t.Fatalf("plan: exit %d, %v\n%s", code, err, out)
	}
	if last := planned.Nodes[2].Node; last != e.leader(t) {
		t.Errorf("the last to be rolled is %s, and %s leads", last, e.leader(t))
	}

	// The writers try again: etcd refuses while it has no leader.
	var acked [3]atomic.Int64
	stop := make(chan struct{})
	var writers sync.WaitGroup
	put := func(w int, n int64) bool {
		key := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "w%d", w))
		value := base64.StdEncoding.EncodeToString(fmt.Append(nil, n))
		for i := range 3 {
			if _, err := e.post((w+i)%3, "/v3/kv/put", fmt.Sprintf(`{"key":%q,"value":%q}`, key, value)); err == nil {
				return true
			}
		}
		return false
	}
	for w := range acked {
		writers.Go(func() {
			for n := int64(1); ; {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				if put(w, n) {
					acked[w].Store(n)
					n++
				}
			}
		})
	}
	down := make(chan int, 1)
	go func() { down <- e.watchDown(stop) }()

	code, out, report := run("--yes", "--settle", "1s", "--max-refusals", "20", "-o", "json")
	if code != 0 || report.Status != "done" || report.Canary == nil || report.Canary.During.Attempts < 10 || report.Canary.Before.Attempts == 0 || report.Canary.After.Attempts == 0 {
		t.Errorf("roll: exit %d\n%s", code, out)
	}
	t.Logf("canary: %+v", report.Canary)
	if moves := e.moves(t); len(moves) == 0 {
		t.Error("the leader was stopped without its drain")
	} else {
		t.Logf("the lead was moved by: %s", strings.Join(moves, "; "))
	}
	_, shown, _ := run("show")
	t.Logf("show:\n%s", shown)

	// One that does not come back pauses it, and no other is touched.
	e.rest("n1", true)
	e.rest("n2", true)
	code, out, _ = run("--yes", "--only", "n1", "--only", "n2", "--settle", "1s", "--stall", "5s", "--max-refusals", "50")
	if code != 8 || !bytes.Contains(out, []byte("nothing moved for 5s")) {
		t.Errorf("a member that does not come back: exit %d\n%s", code, out)
	}
	t.Logf("paused:\n%s", out)
	if code, out, _ := run("--yes"); code != 9 || !bytes.Contains(out, []byte("roll 2 of")) {
		t.Errorf("a second roll: exit %d\n%s", code, out)
	}
	e.rest("n1", false)
	e.rest("n2", false)
	if code, out, _ := run("resume"); code != 0 {
		t.Errorf("resume: exit %d\n%s", code, out)
	}
	close(stop)
	writers.Wait()
	if most := <-down; most != 1 {
		t.Errorf("%d members were down at once", most)
	}
	for w := range acked {
		key := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "w%d", w))
		b, err := e.post(w, "/v3/kv/range", fmt.Sprintf(`{"key":%q}`, key))
		var got struct{ Kvs []struct{ Value []byte } }
		if err != nil || json.Unmarshal(b, &got) != nil || len(got.Kvs) != 1 {
			t.Errorf("read back: %s, %v", b, err)
			continue
		}
		if n, _ := strconv.ParseInt(string(got.Kvs[0].Value), 10, 64); n < acked[w].Load() {
			t.Errorf("writer %d was told of %d, and %d is there", w, acked[w].Load(), n)
		}
		t.Logf("writer %d: %d acknowledged", w, acked[w].Load())
	}
	for _, id := range etcdIDs() {
		e.mu.Lock()
		alive := e.procs[id].Process.Signal(syscall.Signal(0))
		e.mu.Unlock()
		if alive != nil {
			t.Errorf("%s does not run: %v", id, alive)
		}
	}
}
