package rafthost

import "fmt"

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
func (l raftLogger) Panicf(f string, v ...any) { l.die(fmt.Sprintf(f, v...)) }

func (l raftLogger) die(what string) {
	panic(fmt.Sprintf("raft group %d: %s", l.group, what)) //nolint:forbidigo // raft expects it not to return
}
