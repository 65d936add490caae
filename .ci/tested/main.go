// Command tested runs `go test` with the arguments given and prints what it would: a line
// for each package, and all that its failed tests said. Then it names the tests that were
// skipped for want of something: they pass for years where nobody is told.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// event is one line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// tested is what became of the packages so far.
type tested struct {
	out      io.Writer
	said     map[string][]event // by package, until it is over
	over     map[event]bool     // tests of it that passed or were skipped
	demanded int                // tests that run on demand only
	wanting  []string           // and those that lacked something
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: tested GO [ARGUMENTS OF GO TEST]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "go test:", err)
		os.Exit(1)
	}
}

func run(program string, args []string) error {
	cmd := exec.Command(program, append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err = cmd.Start(); err != nil {
		return err
	}
	t := &tested{out: os.Stdout, said: map[string][]event{}, over: map[event]bool{}}
	r := bufio.NewReader(lines)
	for err == nil {
		var line []byte
		line, err = r.ReadBytes('\n')
		t.take(line)
	}
	t.report()
	return cmd.Wait()
}

// take takes a line in.
func (t *tested) take(line []byte) {
	var e event
	if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &e) != nil {
		_, _ = t.out.Write(line) // not of a test
		return
	}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(t.out, e.Output)
	case e.Action == "output":
		t.said[e.Package] = append(t.said[e.Package], e)
	case e.Action != "pass" && e.Action != "skip" && e.Action != "fail":
	case e.Test == "":
		t.show(e)
	case e.Action != "fail":
		t.over[event{Package: e.Package, Test: e.Test}] = true
		if e.Action == "skip" {
			t.skipped(e)
		}
	}
}

// show prints what a package that is over has to say: if it failed, all that its tests
// said, but for those that are well.
func (t *tested) show(end event) {
	said := t.said[end.Package]
	delete(t.said, end.Package)
	for i, e := range said {
		failed := end.Action == "fail" && !t.over[event{Package: e.Package, Test: e.Test}] && !strings.HasPrefix(e.Output, "=== ")
		if failed || i == len(said)-1 {
			fmt.Fprint(t.out, e.Output)
		}
	}
}

// skipped notes why a test was.
func (t *tested) skipped(test event) {
	why := "for no reason that it gives"
	for _, e := range slices.Backward(t.said[test.Package]) {
		if e.Test == test.Test && strings.HasPrefix(e.Output, "    ") {
			why = strings.TrimSpace(e.Output)
			break
		}
	}
	if strings.Contains(why, ": on demand: ") {
		t.demanded++
		return
	}
	t.wanting = append(t.wanting, fmt.Sprintf("%s %s: %s", test.Package, test.Test, why))
}

func (t *tested) report() {
	for _, said := range t.said { // of packages that did not come to an end
		for _, e := range said {
			fmt.Fprint(t.out, e.Output)
		}
	}
	fmt.Fprintf(t.out, "tests that run on demand only: %d; skipped for want of something: %d\n", t.demanded, len(t.wanting))
	for _, w := range t.wanting {
		fmt.Fprintln(t.out, "  skipped:", w)
	}
}
