package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatIsRenamedIsOnTheDisk: whoever makes a file and gives it its name afterwards has
// synced it in between. Without that a crash leaves the name of a file that holds nothing,
// as of a key or of a journal, and no test sees it on a machine that does not crash.
func TestWhatIsRenamedIsOnTheDisk(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(root, p.room(), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				at := lastCalls(f)
				if at["Rename"] == 0 || max(at["Create"], at["CreateTemp"], at["OpenFile"]) == 0 {
					continue
				}
				seen++
				if at["Sync"] == 0 || at["Sync"] > at["Rename"] {
					t.Errorf("%s: %s renames what it has not synced", path, f.Name.Name)
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("%d places that make files and rename them: the test sees too little", seen)
	}
}

// lastCalls returns where in a function each method or function of a package is called
// last.
func lastCalls(f *ast.FuncDecl) map[string]token.Pos {
	at := map[string]token.Pos{}
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok {
				at[s.Sel.Name] = max(at[s.Sel.Name], s.Pos())
			}
		}
		return true
	})
	return at
}
