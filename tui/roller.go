package tui

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"tidal/node/api"
)

// Roller rolls the cluster: this package does not know how. The texts that it returns
// are for people. Its methods may be called from any goroutine.
type Roller interface {
	// Plan says what a roll would do now. The error says what blocks it.
	Plan(ctx context.Context) (RollPlan, error)
	// Start begins one, and Resume goes on with the newest one, if it still is of that
	// id and epoch. They return once this program has the lock.
	Start(ctx context.Context) (string, error)
	Resume(ctx context.Context, id, epoch uint64) (string, error)
	// Pause has whoever carries the newest roll out pause at the next safe place.
	Pause(ctx context.Context, id uint64) (string, error)
	// Running returns the roll that is carried out here and what it does now; 0: none.
	Running() (id uint64, doing string)
}

// RollPlan is what a roll would do.
type RollPlan struct {
	Nodes []string // in the order in which they would be restarted
	Notes []string // what is worth a thought
}

// planMsg is a plan that was asked for.
type planMsg struct {
	plan RollPlan
	err  error
}

// askRoll asks to start a roll, to pause the one that runs, or to resume the one that
// is paused or whose operator is gone.
func (m *model) askRoll() tea.Cmd {
	switch {
	case m.readOnly("rolled"):
	case m.o.Roller == nil || m.p.RollsAt.IsZero():
		m.say(true, "what has been rolled is not known yet")
	case m.p.old() || m.p.Now.Sub(m.p.RollsAt) > 2*rollsEvery+oldData:
		m.say(true, "what has been rolled is not known now: nobody answers")
	case mayBeTaken(m.p.Roll):
		m.askResume(m.p.Roll)
	case m.p.Roll != nil && m.p.Roll.Status == api.RollRunning:
		m.askPause(m.p.Roll)
	default:
		m.say(false, "making a plan…")
		ctx := m.o.ctx
		return func() tea.Msg {
			limited, cancel := context.WithTimeout(ctx, actLimit)
			defer cancel()
			plan, err := m.o.Roller.Plan(limited)
			return planMsg{plan, err}
		}
	}
	return nil
}

// mayBeTaken reports whether somebody else may go on with a roll: it is paused, or whoever
// carried it out is gone, and could not be asked to pause either.
func mayBeTaken(r *api.Roll) bool {
	if r == nil {
		return false
	}
	_, alone := r.Alone()
	return alone || r.Status == api.RollPaused
}

// aloneText says that whoever carried a roll out is gone.
func aloneText(r *api.Roll) string {
	silent, _ := r.Alone()
	return fmt.Sprintf("nobody has heard %s for %s", clean(r.By), span(silent))
}

// planned opens the dialog about starting a roll.
func (m *model) planned(msg planMsg) {
	switch {
	case msg.err != nil:
		m.say(true, "no roll: %s", clean(msg.err.Error()))
		return
	case len(msg.plan.Nodes) == 0:
		m.say(false, "there is nothing to roll")
		return
	case m.dialog != nil || m.p.Status == nil:
		return // something else was begun meanwhile
	}
	newest := m.newestRoll()
	d := &dialog{
		title: "roll cluster " + cut(clean(m.p.Status.Cluster), 40), verb: "roll", want: clean(m.p.Status.Cluster), undone: "nothing was rolled", asking: "beginning the roll…",
		text: []string{
			"id " + m.p.Status.ClusterID.String(),
			fmt.Sprintf("%s are restarted in place, one after the other: %s.", counted(len(msg.plan.Nodes), "node"), clean(strings.Join(msg.plan.Nodes, ", "))),
			"It is carried out from here: leaving pauses it.",
		},
	}
	for _, note := range msg.plan.Notes {
		d.text = append(d.text, clean(note))
	}
	d.still = func(p *Picture) string {
		if p.Roll != nil && p.Roll.ID != newest {
			return fmt.Sprintf("%s has begun roll %d", clean(p.Roll.By), p.Roll.ID)
		}
		return ""
	}
	d.do = func(ctx context.Context, _ int) (string, error) { return m.o.Roller.Start(ctx) }
	m.dialog, m.notice = d, notice{}
}

func (m *model) newestRoll() uint64 {
	if m.p.Roll == nil {
		return 0
	}
	return m.p.Roll.ID
}

func (m *model) askPause(r *api.Roll) {
	id := r.ID
	m.dialog = &dialog{
		title: fmt.Sprintf("pause roll %d", id), verb: "pause", asking: "asking for a pause…",
		undone: fmt.Sprintf("roll %d was not paused", id), still: sameRoll(r),
		text: []string{"epoch " + strconv.FormatUint(r.Epoch, 10) + ", by " + clean(r.By), "It pauses at the next place where that is safe, when the node in hand is back."},
		do:   func(ctx context.Context, _ int) (string, error) { return m.o.Roller.Pause(ctx, id) },
	}
}

func (m *model) askResume(r *api.Roll) {
	id, epoch := r.ID, r.Epoch
	d := &dialog{
		title: fmt.Sprintf("resume roll %d", id), verb: "resume", want: strconv.FormatUint(id, 10), asking: "taking the roll…",
		undone: fmt.Sprintf("roll %d was not resumed", id), still: sameRoll(r),
		text: []string{"epoch " + strconv.FormatUint(epoch, 10) + ", by " + clean(r.By)},
		do:   func(ctx context.Context, _ int) (string, error) { return m.o.Roller.Resume(ctx, id, epoch) },
	}
	if _, alone := r.Alone(); alone {
		d.text = append(d.text, "Nothing goes on: "+aloneText(r)+".")
	} else if r.Why != "" {
		d.text = append(d.text, "It is paused: "+clean(r.Why)+".")
	}
	d.text = append(d.text, "It is carried out from here: leaving pauses it.")
	m.dialog = d
}

// sameRoll returns what tells whether a roll is still as it was.
func sameRoll(was *api.Roll) func(*Picture) string {
	id, epoch, status := was.ID, was.Epoch, was.Status
	return func(p *Picture) string {
		switch r := p.Roll; {
		case r == nil || r.ID != id:
			return "there is another roll now"
		case r.Status != status:
			return "it is " + clean(string(r.Status)) + " now"
		case r.Epoch != epoch:
			return clean(r.By) + " has taken it"
		}
		return ""
	}
}
