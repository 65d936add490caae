package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the top of the project as seen from this folder.
const root = "../.."

const module = "tidal"

// rooms says which rooms each room may import: imports go down only. It is the
// table of CONTRIBUTING.md.
func rooms() map[string][]string {
	return map[string][]string{
		"cmd/tidal": {"cmd/tidal/early", "node", "node/config", "node/api", "node/client", "pki", "roll", "roll/generic", "tui"},

		"roll/generic": {"roll", "node/api", "node/client"},

		"examples/go-client": {"node/api", "node/client"},

		"roll": {"node/api", "node/client"},
		"tui":  {"node/api", "node/client"},

		"node": {
			"node/api", "node/config", "pki",
			"node/internal/server", "node/internal/router", "node/internal/cluster", "node/internal/owner",
			"node/internal/rafthost", "node/internal/peer", "node/internal/raftlog", "node/internal/table", "node/internal/meta",
			"node/internal/wire", "node/internal/store", "node/internal/place", "node/internal/ready",
		},

		"node/internal/server": {"node/api", "node/internal/wire"},
		"node/internal/router": {"node/api"},

		"node/internal/cluster": {"node/api", "node/internal/wire", "node/internal/meta", "node/internal/place", "node/internal/ready", "node/internal/table", "node/internal/store", "node/internal/rafthost"},
		"node/internal/owner":   {"node/api", "node/internal/wire", "node/internal/meta", "node/internal/place", "node/internal/ready", "node/internal/table", "node/internal/store", "node/internal/rafthost"},

		"node/internal/rafthost": {"node/internal/wire", "node/internal/store", "node/internal/raftlog"},
		"node/internal/peer":     {"node/api", "node/internal/wire"},

		"node/internal/raftlog": {"node/api", "node/internal/wire", "node/internal/store"},
		"node/internal/table":   {"node/api", "node/internal/wire", "node/internal/store"},
		"node/internal/meta":    {"node/api", "node/internal/wire", "node/internal/store"},

		"node/internal/wire":  {"node/api"},
		"node/internal/store": {},
		"node/internal/place": {"node/api"},
		"node/internal/ready": {"node/api"},
		"node/client":         {"node/api", "node/internal/wire"},
		"node/config":         {"node/api"},

		"node/api":        {},
		"pki":             {},
		"cmd/tidal/early": {},
	}
}

// testRooms hold tests only: they may import every room, and no room may import them.
func testRooms() []string {
	return []string{"cmd/tidal/proctest", "node/internal/sim", "node/internal/bubble"}
}

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath   string
	Dir          string
	Imports      []string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
}

func (p listed) room() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func goList(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.Bytes())
	}
	return out
}

func packages(t *testing.T) []listed {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(goList(t, "-json", "./...")))
	var all []listed
	for {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// TestFloors proves that imports go down only.
func TestFloors(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(testRooms(), p.room()) {
			continue
		}
		allowed, ok := rooms()[p.room()]
		if !ok {
			t.Errorf("%s is no room of this house; give it a floor in CONTRIBUTING.md and here", p.room())
			continue
		}
		for _, i := range p.Imports {
			to, ours := strings.CutPrefix(i, module+"/")
			if ours && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s, and may import %v", p.room(), to, allowed)
			}
		}
	}
}

// TestRoomsGoDown proves that the table itself has no way up or round.
func TestRoomsGoDown(t *testing.T) {
	var walk func(path []string, room string)
	walk = func(path []string, room string) {
		if slices.Contains(path, room) {
			t.Fatalf("a circle: %v", append(path, room))
		}
		for _, to := range rooms()[room] {
			walk(append(slices.Clone(path), room), to)
		}
	}
	for room := range rooms() {
		walk(nil, room)
	}
}

func TestFloorsAreWrittenDown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	for room := range rooms() {
		name := room[strings.LastIndex(room, "/")+1:]
		if !bytes.Contains(text, []byte(name)) {
			t.Errorf("CONTRIBUTING.md does not mention %s", room)
		}
	}
}

func TestTopLevel(t *testing.T) {
	allowed := []string{"cmd", "node", "tui", "pki", "roll", "docs", "examples", "bin", "dist"} // the last two are made and ignored
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(allowed, e.Name()) {
			t.Errorf("folder %s at the top level, where only %v are", e.Name(), allowed)
		}
	}
}

func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	for _, p := range packages(t) {
		name := filepath.Base(p.ImportPath)
		if slices.Contains([]string{"common", "util", "utils", "types", "helpers", "misc", "shared"}, name) {
			t.Errorf("%s: the name says nothing", p.room())
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, "doc.go"), nil, parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", p.room(), err)
			continue
		}
		begin := "Package " + f.Name.Name + " "
		if f.Name.Name == "main" {
			begin = "Command " + name + " "
		}
		doc := f.Doc.Text()
		if !strings.HasPrefix(doc, begin) {
			t.Errorf("%s: doc.go does not begin with %q", p.room(), begin)
		}
		paragraphs := strings.Split(strings.TrimSpace(doc), "\n\n")
		if !strings.Contains(paragraphs[len(paragraphs)-1], "import") {
			t.Errorf("%s: the last paragraph of doc.go does not say what the package may import", p.room())
		}
	}
}

// TestForbiddenCalls covers what the linter is told to leave alone in tests, and
// what only main.go may do.
func TestForbiddenCalls(t *testing.T) {
	for _, p := range packages(t) {
		tests := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		for _, name := range slices.Concat(p.GoFiles, tests) {
			path := filepath.Join(p.Dir, name)
			calls := selectors(t, path)
			isTest := slices.Contains(tests, name)
			if slices.Contains(calls, "time.Sleep") && (isTest || slices.Contains(testRooms(), p.room())) {
				t.Errorf("%s sleeps; wait for a condition, or use testing/synctest", path)
			}
			program := p.room() == "cmd/tidal" || p.room() == "examples/go-client"
			if slices.Contains(calls, "os.Exit") && !isTest && (!program || name != "main.go") {
				t.Errorf("%s exits; only the main.go of a program does", path)
			}
		}
	}
}

// selectors returns the selector expressions of two names in a file, as "os.Exit".
func selectors(t *testing.T, path string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				all = append(all, x.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return all
}

// TestPKIStaysSmall keeps the parts of the certificate library out that open
// databases, read the user's folders and panic at start.
func TestPKIStaysSmall(t *testing.T) {
	for dep := range strings.FieldsSeq(string(goList(t, "-deps", "./pki"))) {
		rest, ok := strings.CutPrefix(dep, "github.com/smallstep/certificates/")
		if ok && !strings.HasPrefix(rest, "cas/") {
			t.Errorf("pki depends on %s", dep)
		}
	}
}
