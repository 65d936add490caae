package meta_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

// parseRoll reads a change of a roll. The same line has the same request id: it
// is a command that was sent again.
//
//	start BY [again]
//	take|unlock ROLL EPOCH BY
//	note ROLL EPOCH NODE STATE [NOTE]
//	end ROLL EPOCH STATUS [WHY]
//	ask ROLL WHAT
func parseRoll(t *testing.T, words []string) (id api.RequestID, c wire.RollCommand) {
	t.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join(words, " "))) // never fails
	h.Sum(id[:0])
	c.At = 1000
	for a := api.RollStart; a <= api.RollRenew; a++ {
		if a.String() == words[0] {
			c.Action = a
		}
	}
	if words[0] == "start" {
		c.By, c.Data = words[1], []byte(`{"plan":1}`)
		return id, c
	}
	c.Roll = number(t, words[1])
	if words[0] == "ask" {
		c.Ask = words[2]
		return id, c
	}
	c.Epoch = number(t, words[2])
	switch words[0] {
	case "take", "unlock":
		c.By = words[3]
	case "note":
		c.Node, c.State, c.Note = words[3], words[4], strings.Join(words[5:], " ")
	case "end":
		c.Status, c.Why = api.RollStatus(words[3]), strings.Join(words[4:], " ")
	}
	return id, c
}

func showRolls(b *strings.Builder, v *meta.View) {
	for _, r := range v.Rolls {
		fmt.Fprintf(b, "roll %d epoch %d by %s %s ask=%q why=%q plan=%s\n", r.ID, r.Epoch, r.By, r.Status, r.Ask, r.Why, r.Plan)
		for _, n := range r.Nodes {
			fmt.Fprintf(b, "  %s %s %q:", n.Node, n.State, n.Note)
			for _, s := range n.Steps {
				b.WriteString(" " + s.State)
			}
			b.WriteByte('\n')
		}
	}
}

// randomRoll returns a change that is often one of the newest roll, by its holder.
func randomRoll(rnd *rand.Rand, v *meta.View) wire.RollCommand {
	statuses := []api.RollStatus{api.RollPaused, api.RollDone, api.RollAborted}
	c := wire.RollCommand{
		Action: api.RollAction(rnd.IntN(int(api.RollRenew)) + 1), Roll: rnd.Uint64N(4), Epoch: rnd.Uint64N(4), At: int64(rnd.IntN(1000)),
		By: "p" + string(rune('a'+rnd.IntN(3))), Node: string(rune('a' + rnd.IntN(4))), State: "s" + string(rune('a'+rnd.IntN(4))),
		Status: statuses[rnd.IntN(3)], Ask: api.RollAskPause,
	}
	if last := v.LastRoll(); last != nil && rnd.IntN(4) > 0 {
		c.Roll, c.Epoch = last.ID, last.Epoch
	}
	return c
}

// The journal is bounded: of many rolls the last are kept, and of many steps too.
func TestRollsAreForgotten(t *testing.T) {
	g := newGroup(t)
	g.form("a", "b", "c")
	for i := range 50 {
		id := api.RequestID{1, byte(i)}
		r := g.apply(wire.MetaCommand{Kind: wire.MetaChangeRoll, ID: id, Roll: wire.RollCommand{Action: api.RollStart, By: "ann"}})
		for k := range 100 {
			g.apply(wire.MetaCommand{Kind: wire.MetaChangeRoll, Roll: wire.RollCommand{
				Action: api.RollNote, Roll: r.Answer.Roll, Epoch: r.Answer.Epoch, Node: "a", State: fmt.Sprint(k),
			}})
		}
		g.apply(wire.MetaCommand{Kind: wire.MetaChangeRoll, Roll: wire.RollCommand{
			Action: api.RollEnd, Roll: r.Answer.Roll, Epoch: r.Answer.Epoch, Status: api.RollDone,
		}})
	}
	g.reload()
	rolls := g.s.View().Rolls
	if len(rolls) != 20 || rolls[0].ID != 31 || rolls[19].ID != 50 || rolls[19].Epoch != 50 {
		t.Fatalf("%d rolls, the last %+v", len(rolls), rolls[len(rolls)-1])
	}
	steps := rolls[19].Nodes[0].Steps
	if len(steps) != 64 || steps[63].State != "99" {
		t.Errorf("%d steps are kept: %v", len(steps), steps)
	}
	n := 0
	for k := range g.records {
		if strings.HasPrefix(k, "roll/") {
			n++
		}
	}
	if n != 40 {
		t.Errorf("%d records of rolls are kept, want 40", n)
	}
}
