package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/roll"
)

const (
	rollLook = 500 * time.Millisecond // how often `tidal roll watch` looks
	sayAlone = 5 * time.Second        // for how long an operator is silent before that is shown: it is heard every 2 s
)

// isTerminal reports whether what is written there is seen by somebody now.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// rollShown shows a roll as it goes on: a line for what happened, and on a terminal
// one that is overwritten for what is waited for.
type rollShown struct {
	*rolling

	terminal bool
	mu       struct {
		sync.Mutex      // whoever restarts nodes says something too, and not where events are said
		line       bool // the last line is to be overwritten
	}
}

func (s *rollShown) event(e roll.Event) {
	if s.format == formatJSON {
		b, err := json.Marshal(e)
		if err == nil {
			_, _ = s.app.stdout.Write(append(b, '\n')) // what stdout does not take can be told nowhere
		}
		return
	}
	text := e.Time.Local().Format(time.TimeOnly) + "  "
	switch {
	case e.Event == "state":
		text += fmt.Sprintf("%-10s %-12s %s", e.Node, e.State, e.Note)
	case e.Node != "":
		text += fmt.Sprintf("%-10s %s", e.Node, e.Note)
	default:
		text += e.Note
	}
	text = strings.TrimRight(text, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
	if s.terminal && e.Event == "wait" {
		s.mu.line = true
		_, _ = fmt.Fprint(s.app.stderr, text) // as with say
		return
	}
	s.app.say("%s", text)
}

// tell says something that is no event.
func (s *rollShown) tell(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
	s.app.say("%s", text)
}

// clear takes away the line that is to be overwritten.
func (s *rollShown) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
}

func (s *rollShown) clearLocked() {
	if s.mu.line {
		_, _ = fmt.Fprint(s.app.stderr, "\r\x1b[K") // as with say
		s.mu.line = false
	}
}

// notBegun ends a command that was to roll and did not, in JSON too.
func (w *rolling) notBegun(err error) error {
	if w.format != formatJSON {
		return err
	}
	r := roll.Report{Event: "report", Status: "not-begun", Nodes: []roll.NodeReport{}}
	if err != nil {
		r.Why = err.Error()
	}
	return errors.Join(w.writeLine(r), err)
}

func (w *rolling) writeLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.app.stdout.Write(append(b, '\n'))
	return err
}

func (w *rolling) printPlan(p *roll.Plan) error {
	rows := make([][]string, 0, len(p.Nodes))
	for i, n := range p.Nodes {
		what := fmt.Sprintf("%d. %s", i+1, map[string]string{
			roll.DriverInPlace: "restart in place", roll.DriverExec: "restart by command", roll.DriverManual: "you restart it",
			roll.KindGeneric: "drain and restart by commands",
		}[p.Options.Driver])
		if n.Skip != "" {
			what = "skip: " + n.Skip
		}
		rows = append(rows, []string{n.Node, what, strconv.Itoa(n.Owned), orDash(n.Zone), orDash(n.Version), orDash(n.Incarnation)})
	}
	if err := w.app.writeTable([]string{"NODE", "STEP", "TABLES", "ZONE", "VERSION", "INCARNATION"}, rows); err != nil {
		return err
	}
	if _, err := io.WriteString(w.app.stdout, "\n"); err != nil {
		return err
	}
	rows = rows[:0]
	for _, c := range p.Checks {
		rows = append(rows, []string{c.Name, string(c.Level), c.Detail})
	}
	if err := w.app.writeTable([]string{"CHECK", "LEVEL", "DETAIL"}, rows); err != nil {
		return err
	}
	return w.printCommands(p)
}

func ms(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) + " ms" }

// p99 shows that of no requests, or of some that nobody knows, as none.
func p99(v float64) string {
	if v == 0 {
		return "-"
	}
	return ms(v)
}

func (w *rolling) printReport(r *roll.Report) error {
	if w.format == formatJSON {
		return w.writeLine(r)
	}
	if r.Kind == roll.KindGeneric {
		if r.Canary != nil && r.Canary.Unknown != "" {
			w.app.say("not counted is %s", r.Canary.Unknown)
		}
		return w.printCanary(r)
	}
	rows := make([][]string, 0, len(r.Nodes)+1)
	line := func(name string, requests, refused uint64, longest float64, shut string, before, during float64) []string {
		return []string{name, strconv.FormatUint(requests, 10), strconv.FormatUint(refused, 10), ms(longest), shut, p99(before), p99(during)}
	}
	for _, n := range r.Nodes {
		shut := "-"
		if n.ShutMS > 0 {
			shut = fmt.Sprintf("%d ms", n.ShutMS)
		}
		rows = append(rows, line(n.Node, n.Requests, n.Refused, n.LongestMS, shut, n.P99Before, n.P99During))
	}
	rows = append(rows, line("all", r.Requests, r.Refused, r.LongestMS, "", r.P99Before, r.P99During))
	if err := w.app.writeTable([]string{"NODE", "REQUESTS", "REFUSED", "LONGEST", "PORT SHUT", "P99 BEFORE", "P99 DURING"}, rows); err != nil {
		return err
	}
	for _, n := range r.Nodes {
		if n.Unknown != "" {
			w.app.say("node %s: not counted is %s", n.Node, n.Unknown)
		}
	}
	w.app.say("roll %d is %s: %s", r.Roll, r.Status, reasonsOf(r))
	return nil
}

func reasonsOf(r *roll.Report) string {
	if r.Refused == 0 {
		return fmt.Sprintf("0 of %d requests were refused", r.Requests)
	}
	var parts []string
	for code, n := range r.ByReason {
		parts = append(parts, fmt.Sprintf("%d %s", n, code))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d of %d requests were refused: %s", r.Refused, r.Requests, strings.Join(parts, ", "))
}

func (w *rolling) printRolls(list []api.Roll) error {
	if w.format == formatJSON {
		for i := range list {
			if err := ownReport(&list[i]); err != nil {
				return err
			}
		}
		return w.app.writeJSON(api.RollList{Rolls: list})
	}
	rows := make([][]string, 0, len(list))
	for _, r := range list {
		status := string(r.Status)
		if r.Ask != "" {
			status += ", asked to " + r.Ask
		}
		if silent, gone := r.Alone(); gone && w.seesProcess() {
			status += ", operator gone"
		} else if silent >= sayAlone {
			status += ", operator silent for " + silent.Round(time.Second).String()
		}
		rows = append(rows, []string{
			strconv.FormatUint(r.ID, 10), status, r.By, strconv.FormatUint(r.Epoch, 10),
			r.Began.Local().Format(time.DateTime), r.Changed.Local().Format(time.DateTime), orDash(r.Why),
		})
	}
	return w.app.writeTable([]string{"ROLL", "STATUS", "BY", "EPOCH", "BEGAN", "CHANGED", "WHY"}, rows)
}

// ownReport has a roll carry no report that contradicts it, as that of its last pause does
// when it was resumed: see roll.ReportOf.
func ownReport(r *api.Roll) error {
	report, err := roll.ReportOf(r)
	if err != nil {
		return err
	}
	if r.Report = nil; report != nil {
		r.Report, err = json.Marshal(report)
	}
	return err
}

func (a *app) rollHistory(c *cli.Context) error {
	w, err := a.rollOn(c, false)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	list, err := w.cl.Rolls(c.Context)
	if err != nil {
		return fmt.Errorf("list the rolls: %w", err)
	}
	return w.printRolls(list)
}

func (a *app) rollStatus(c *cli.Context) error {
	w, err := a.rollOn(c, false)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	return w.show(c.Context, 0)
}

func (a *app) rollShow(c *cli.Context) error {
	w, err := a.rollOn(c, false, "[ID]")
	if err != nil {
		return err
	}
	defer w.cl.Close()
	id := uint64(0)
	if text := c.Args().First(); text != "" {
		if id, err = strconv.ParseUint(text, 10, 64); err != nil || id == 0 {
			return withHint(usagef("roll show: %q is no number of a roll", text), "`tidal roll history` lists them")
		}
	}
	return w.show(c.Context, id)
}

// show prints a roll.
func (w *rolling) show(ctx context.Context, id uint64) error {
	r, err := w.cl.Roll(ctx, id)
	if err != nil {
		return rollNotFound(id, fmt.Errorf("look at the roll: %w", err))
	}
	if w.format == formatJSON {
		if err = ownReport(&r); err != nil {
			return err
		}
		return w.app.writeJSON(r)
	}
	if err = w.printRolls([]api.Roll{r}); err != nil {
		return err
	}
	if _, alone := r.Alone(); alone {
		w.app.say("%s", w.aloneText(&r))
	}
	p, err := planOf(&r)
	if err != nil {
		return err
	}
	if _, err = io.WriteString(w.app.stdout, "\n"); err != nil {
		return err
	}
	if err = w.app.writeTable([]string{"NODE", "STATE", "SINCE", "NOTE"}, journalRows(&r, p)); err != nil {
		return err
	}
	report, err := roll.ReportOf(&r)
	if report == nil {
		return err
	}
	if _, err = io.WriteString(w.app.stdout, "\n"); err != nil {
		return err
	}
	return w.printReport(report)
}

// rollNotFound says where the rolls are listed, if there is none by that number.
func rollNotFound(id uint64, err error) error {
	if id != 0 && api.CodeOf(err) == api.CodeRollNotFound {
		return withHint(err, "`tidal roll history` lists the last ones")
	}
	return err
}

// aloneText says that the operator of a roll is gone, and what to do.
func (w *rolling) aloneText(r *api.Roll) string {
	if w.seesProcess() {
		return fmt.Sprintf("the process of %s has ended, and nothing goes on without it: `tidal roll resume` does", r.By)
	}
	silent, _ := r.Alone()
	return fmt.Sprintf("nobody has heard %s for %s, and nothing goes on without it: `tidal roll resume` does", r.By, silent.Round(time.Second))
}

func journalRows(r *api.Roll, p *roll.Plan) [][]string {
	var rows [][]string
	for _, n := range p.Nodes {
		row := []string{n.Node, "waits", "-", "-"}
		if n.Skip != "" {
			row[1], row[3] = "skipped", n.Skip
		}
		for _, x := range r.Nodes {
			if x.Node == n.Node && len(x.Steps) > 0 {
				row = []string{n.Node, x.State, x.Steps[len(x.Steps)-1].At.Local().Format(time.TimeOnly), orDash(x.Note)}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (a *app) rollWatch(c *cli.Context) error {
	w, err := a.rollOn(c, false)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	r, err := w.cl.Roll(c.Context, 0)
	if err != nil {
		return fmt.Errorf("look at the roll: %w", err)
	}
	shown := &rollShown{rolling: w}
	seen, wasAlone, blind := map[string]api.RollStep{}, false, false
	tick := time.NewTicker(rollLook)
	defer tick.Stop()
	ctx := c.Context
	for {
		for _, e := range newSteps(&r, seen) {
			shown.event(e)
		}
		if r.Status != api.RollRunning {
			return w.ended(&r)
		}
		wasAlone = w.sayAlone(&r, wasAlone)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := w.cl.Roll(ctx, r.ID)
		switch {
		case err == nil:
			r = now
			if blind {
				a.say("the roll is seen again")
			}
		case api.CodeOf(err) == api.CodeRollNotFound:
			return rollNotFound(r.ID, fmt.Errorf("look at the roll: %w", err))
		case ctx.Err() == nil && !blind:
			a.say("the roll cannot be seen now, and is looked for on: %v", err)
		}
		blind = err != nil
	}
}

// newSteps returns what a roll has noted since it was looked at last, in order; last is
// the last step of each node that was seen. The journal keeps so many steps of a node, and
// drops the oldest.
func newSteps(r *api.Roll, last map[string]api.RollStep) []roll.Event {
	var out []roll.Event
	for _, n := range r.Nodes {
		fresh := n.Steps
		if seen, ok := last[n.Node]; ok {
			for i, s := range slices.Backward(n.Steps) {
				if s.State == seen.State && s.At.Equal(seen.At) {
					fresh = n.Steps[i+1:]
					break
				}
			}
		}
		for _, s := range fresh {
			out = append(out, roll.Event{Event: "state", Roll: r.ID, Time: s.At, Node: n.Node, State: roll.State(s.State)})
			last[n.Node] = s
		}
	}
	slices.SortStableFunc(out, func(a, b roll.Event) int { return a.Time.Compare(b.Time) })
	return out
}

// sayAlone says when the operator of a roll is gone, and when it is back.
func (w *rolling) sayAlone(r *api.Roll, was bool) bool {
	_, alone := r.Alone()
	switch {
	case alone && !was:
		w.app.say("%s", w.aloneText(r))
	case was && !alone:
		w.app.say("%s is heard again", r.By)
	}
	return alone
}

// ended says how a roll that was watched ended.
func (w *rolling) ended(r *api.Roll) error {
	report, err := roll.ReportOf(r)
	if report != nil {
		err = w.printReport(report)
	}
	if err != nil {
		return err
	}
	switch r.Status {
	case api.RollPaused:
		return rollError(r.ID, &roll.TroubleError{Why: r.Why, Hint: "go on with `tidal roll resume`, or give up with `tidal roll abort`"})
	case api.RollAborted:
		return withCode(exitAborted, fmt.Errorf("roll %d was aborted: %s", r.ID, r.Why))
	case api.RollRunning, api.RollDone:
	}
	return nil
}
