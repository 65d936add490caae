package rafthost

import (
	"errors"
	"fmt"
	"strings"

	"tidal/node/internal/store"
)

// raftLogger keeps raft quiet: it formats several lines an election, and there
// are 10,000 groups. What matters of them the host tells as events. Only what
// raft cannot survive comes through, as a panic that ends the node.
type raftLogger struct{ group uint64 }

func (raftLogger) Debug(...any)            {}
func (raftLogger) Debugf(string, ...any)   {}
func (raftLogger) Info(...any)             {}
func (raftLogger) Infof(string, ...any)    {}
func (raftLogger) Warning(...any)          {}
func (raftLogger) Warningf(string, ...any) {}
func (raftLogger) Error(...any)            {}
func (raftLogger) Errorf(string, ...any)   {}

func (l raftLogger) Fatal(v ...any)            { l.die(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(f string, v ...any) { l.die(fmt.Sprintf(f, v...)) }
func (l raftLogger) Panic(v ...any)            { l.die(fmt.Sprint(v...)) }

// Panicf tells a disk's doing from a defect: a leader that counts on entries which this
// disk had acknowledged, and has no more, or what the disk itself was asked for.
func (l raftLogger) Panicf(f string, v ...any) {
	if strings.HasPrefix(f, "tocommit(%d) is out of range [lastIndex(%d)]") && len(v) == 2 {
		//nolint:forbidigo // raft expects it not to return
		panic(fmt.Errorf("raft group %d: %w: the others know that entries up to %d were acknowledged by this disk, and it has them up to %d: "+
			"it was put back to an older state, or has lost writes that it had confirmed", l.group, store.ErrDamaged, v[0], v[1]))
	}
	for _, x := range v {
		if err, ok := x.(error); ok && errors.Is(err, store.ErrDamaged) {
			panic(fmt.Errorf("raft group %d: %w", l.group, err)) //nolint:forbidigo // likewise
		}
	}
	l.die(fmt.Sprintf(f, v...))
}

func (l raftLogger) die(what string) {
	panic(fmt.Sprintf("raft group %d: %s", l.group, what)) //nolint:forbidigo // raft expects it not to return
}
