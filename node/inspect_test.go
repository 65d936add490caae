package node_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tidal/node"
)

// files returns a hash of each file in a directory.
func files(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	out := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestStopped looks into the data directory of a node that was killed: what is there
// is shown, and nothing of it is changed.
func TestStopped(t *testing.T) {
	c := newTrio(t, "a")
	dir := filepath.Join(c.dir, "a")
	if _, err := node.OpenStopped(dir); err == nil || !strings.HasPrefix(err.Error(), dir+" is no data directory of a node") {
		t.Errorf("no directory: %v", err)
	}
	c.start("a")
	c.ready("a")
	if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t0", nil); code/100 != 2 {
		t.Fatalf("create a table: %d %s", code, body)
	}
	for i := range 3 {
		if code, body, _ := c.do(http.MethodPut, "a", fmt.Sprintf("/v1/tables/t0/rows/k%d", i), []byte("value")); code/100 != 2 {
			t.Fatalf("put: %d %s", code, body)
		}
	}
	if _, err := node.OpenStopped(dir); !errors.Is(err, node.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("by process %d", os.Getpid())) {
		t.Errorf("a directory in use: %v", err)
	}
	c.kill("a")
	before := files(t, dir)
	s, err := node.OpenStopped(dir)
	if err != nil {
		t.Fatal(err)
	}
	id, err := s.Identity()
	if err != nil || id.Node != "a" || id.Cluster != "test" || id.Start != 1 || id.Pass < 5 || id.Format != 1 || len(id.Founders) != 1 {
		t.Errorf("identity: %+v, %v", id, err)
	}
	state, err := s.State()
	if err != nil || len(state) != 2 || state[0].Name != "meta" || state[1].Name != "t0" || state[1].Rows != 3 {
		t.Fatalf("state: %+v, %v", state, err)
	}
	for _, r := range state {
		if r.Term == 0 || r.Commit < r.Applied || r.Last < r.Commit || len(r.Voters) != 1 || r.Voters[0] != r.Replica || r.Vote != r.Replica {
			t.Errorf("state of %s: %+v", r.Name, r)
		}
	}
	for _, group := range []string{"t0", state[1].Group.String()} {
		log, bad := s.Log(group, 0, 100)
		if bad != nil || len(log) != 4 || log[0].Kind != "empty" || log[3].Kind != "write" || log[3].Index != state[1].Last || log[3].Size == 0 {
			t.Errorf("log of %s: %+v, %v", group, log, bad)
		}
	}
	log, err := s.Log("meta", 2, 2)
	if err != nil || len(log) != 2 || log[0].Index != 2 || log[0].Kind != "grant-lease" || log[1].Kind != "create-table" {
		t.Errorf("log of meta from 2: %+v, %v", log, err)
	}
	if _, err := s.Log("nothing", 0, 1); err == nil || !strings.Contains(err.Error(), "there is no table nothing") {
		t.Errorf("no such group: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	after := files(t, dir)
	if len(after) != len(before) {
		t.Errorf("there were %d files, and are %d", len(before), len(after))
	}
	for path, sum := range before {
		if after[path] != sum {
			t.Errorf("%s was changed", path)
		}
	}
	c.start("a") // it is a node's directory still
	c.ready("a")
}
