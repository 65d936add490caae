package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// askedAt cancels what it is made for once somebody was asked to confirm.
type askedAt struct {
	bytes.Buffer

	cancel context.CancelFunc
}

func (a *askedAt) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("to go on:")) {
		a.cancel()
	}
	return a.Buffer.Write(p)
}

// TestConfirmInterrupted: a signal while somebody is asked ends the command at once, and
// nothing is done, also if the answer comes all the same.
func TestConfirmInterrupted(t *testing.T) {
	silent, end := io.Pipe()
	defer end.Close()
	for name, x := range map[string]struct {
		line  string
		stdin io.Reader
	}{
		"nobody answers":       {"tables drop t", silent},
		"it is answered too":   {"tables drop t", strings.NewReader("t\n")},
		"a disk is given up":   {"node replace b", silent},
		"with the right word":  {"node replace b", strings.NewReader("b\n")},
		"the input ends there": {"node replace b", strings.NewReader("")},
	} {
		node := newFakeNode(t)
		ctx, cancel := context.WithCancel(t.Context())
		talk := &askedAt{cancel: cancel}
		code := make(chan int, 1)
		go func() {
			words := append([]string{"tidal"}, strings.Fields(x.line)...)
			code <- run(ctx, append(words, "--endpoint", node.URL), x.stdin, io.Discard, talk, func(string) (string, bool) { return "", false })
		}()
		select {
		case got := <-code:
			if got != int(exitInterrupted) || !strings.Contains(talk.String(), "tidal: interrupted before it was confirmed: nothing was done\n") {
				t.Errorf("%s: exit code %d:\n%s", name, got, talk)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: it goes on asking", name)
		}
		if i := slices.IndexFunc(node.asked, func(s string) bool { return !strings.HasPrefix(s, "GET ") }); i >= 0 {
			t.Errorf("%s: asked for %s", name, node.asked[i])
		}
	}
}
