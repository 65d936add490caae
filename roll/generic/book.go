package generic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidal/node/api"
)

// bookFormat is the version of a journal's text; keepRolls is how many rolls it
// remembers, and keepSteps how many steps of a node, as a cluster of tidal does.
const (
	bookFormat = 1
	keepRolls  = 20
	keepSteps  = 64
)

// book is a journal: the last rolls, oldest first. Only the last may hold the lock.
type book struct {
	Format int        `json:"format"`
	Write  string     `json:"write,omitempty"` // of a row, another with every write: whoever watches it sees whether the holder lives
	Rolls  []api.Roll `json:"rolls"`
}

func readBook(text []byte) (*book, error) {
	b := &book{Format: bookFormat}
	if len(text) == 0 {
		return b, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(b); err != nil {
		return nil, fmt.Errorf("it is no journal of rolls: %w", err)
	}
	if b.Format != bookFormat {
		return nil, fmt.Errorf("it has format %d, and this program knows %d", b.Format, bookFormat)
	}
	return b, nil
}

func (b *book) text() ([]byte, error) {
	text, err := json.MarshalIndent(b, "", " ")
	return append(text, '\n'), err
}

// last returns the newest roll; nil: there was none.
func (b *book) last() *api.Roll {
	if len(b.Rolls) == 0 {
		return nil
	}
	return &b.Rolls[len(b.Rolls)-1]
}

// roll returns the roll with that id; 0 is the newest.
func (b *book) roll(id uint64) (*api.Roll, error) {
	i := slices.IndexFunc(b.Rolls, func(r api.Roll) bool { return r.ID == id })
	switch {
	case id == 0 && len(b.Rolls) == 0:
		return nil, &api.Error{Code: api.CodeRollNotFound, Message: "there was no roll yet"}
	case id == 0:
		return b.last(), nil
	case i < 0:
		return nil, &api.Error{Code: api.CodeRollNotFound, Message: fmt.Sprintf("there is no roll %d", id)}
	}
	return &b.Rolls[i], nil
}

// list returns all rolls, the newest first, without plans, reports and nodes.
func (b *book) list() []api.Roll {
	out := []api.Roll{}
	for _, r := range slices.Backward(b.Rolls) {
		r.Plan, r.Report, r.Nodes = nil, nil, nil
		out = append(out, r)
	}
	return out
}

func refuse(code api.Code, format string, args ...any) error {
	return &api.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// change does to the journal what a cluster of tidal does to its own. holder says of
// whoever holds the lock whether it lives, and who that is.
func (b *book) change(now time.Time, a api.RollAction, id uint64, c *api.RollChange, holder func() (alive bool, who string)) (api.Roll, error) {
	if err := c.Check(a); err != nil {
		return api.Roll{}, err
	}
	if a == api.RollStart {
		return b.start(now, c, holder)
	}
	r, err := b.roll(id)
	if err != nil {
		return api.Roll{}, err
	}
	if r != b.last() {
		return api.Roll{}, refuse(api.CodeConflict, "roll %d is over: roll %d came after it", r.ID, b.last().ID)
	}
	switch a { //nolint:exhaustive // to start was handled above
	case api.RollTake:
		err = take(now, r, c, holder)
	case api.RollNote:
		err = note(now, r, c)
	case api.RollEnd:
		err = end(now, r, c)
	case api.RollAsk:
		err = ask(r, c)
	case api.RollUnlock:
		err = unlock(now, r, c)
	case api.RollRenew:
		err = holds(r, c.Epoch)
	}
	return *r, err
}

func stale(r *api.Roll, epoch uint64) error {
	return refuse(api.CodeStaleEpoch, "roll %d has epoch %d now and is held by %s (%s): epoch %d is over", r.ID, r.Epoch, r.By, r.Status, epoch)
}

func holds(r *api.Roll, epoch uint64) error {
	if epoch != r.Epoch || r.Status != api.RollRunning {
		return stale(r, epoch)
	}
	return nil
}

// locked says who holds the lock, also when that is the lock of somebody who is dead.
func locked(r *api.Roll, holder func() (bool, string)) error {
	text := fmt.Sprintf("roll %d of %s is %s, and only one roll goes on at a time", r.ID, r.By, r.Status)
	if r.Status == api.RollRunning {
		alive, who := holder()
		switch {
		case !alive:
			text += "; its operator is gone (" + who + ")"
		case who != "":
			text += "; its operator lives (" + who + ")"
		}
	}
	return &api.Error{Code: api.CodeRollLocked, Message: text}
}

func (b *book) start(now time.Time, c *api.RollChange, holder func() (bool, string)) (api.Roll, error) {
	r := api.Roll{ID: 1, Epoch: 1, By: c.By, Status: api.RollRunning, Began: now, Changed: now, Plan: c.Data}
	if last := b.last(); last != nil {
		if last.Status.Open() {
			return *last, locked(last, holder)
		}
		r.ID, r.Epoch = last.ID+1, last.Epoch+1
	}
	b.Rolls = append(b.Rolls, r)
	b.Rolls = b.Rolls[max(0, len(b.Rolls)-keepRolls):]
	return r, nil
}

func take(now time.Time, r *api.Roll, c *api.RollChange, holder func() (bool, string)) error {
	switch {
	case !r.Status.Open():
		return refuse(api.CodeConflict, "roll %d is %s", r.ID, r.Status)
	case c.Epoch != r.Epoch:
		return stale(r, c.Epoch)
	case r.Status == api.RollRunning && !c.Force:
		if alive, who := holder(); alive {
			return refuse(api.CodeRollLocked, "roll %d is held by %s, who lives (%s)", r.ID, r.By, who)
		}
	}
	r.Epoch, r.By, r.Status, r.Changed, r.Ask, r.Why = r.Epoch+1, c.By, api.RollRunning, now, "", ""
	return nil
}

func note(now time.Time, r *api.Roll, c *api.RollChange) error {
	if err := holds(r, c.Epoch); err != nil {
		return err
	}
	i, known := slices.BinarySearchFunc(r.Nodes, c.Node, func(n api.RollNode, id string) int { return strings.Compare(n.Node, id) })
	if !known {
		r.Nodes = slices.Insert(r.Nodes, i, api.RollNode{Node: c.Node})
	}
	n := &r.Nodes[i]
	if n.State != c.State {
		n.Steps = append(n.Steps, api.RollStep{State: c.State, At: now})
		n.Steps = n.Steps[max(0, len(n.Steps)-keepSteps):]
	}
	n.State, n.Note, n.Data = c.State, c.Note, c.Data
	return nil
}

func end(now time.Time, r *api.Roll, c *api.RollChange) error {
	if c.Epoch != r.Epoch {
		return stale(r, c.Epoch)
	}
	if r.Status != api.RollRunning {
		return refuse(api.CodeConflict, "roll %d is %s", r.ID, r.Status)
	}
	r.Status, r.Why, r.Report, r.Changed, r.Ask = c.Status, c.Why, c.Data, now, ""
	return nil
}

func ask(r *api.Roll, c *api.RollChange) error {
	if r.Status != api.RollRunning {
		return refuse(api.CodeConflict, "roll %d is %s: nobody is there to be asked", r.ID, r.Status)
	}
	if r.Ask != api.RollAskAbort {
		r.Ask = c.Ask
	}
	return nil
}

func unlock(now time.Time, r *api.Roll, c *api.RollChange) error {
	if !r.Status.Open() {
		return refuse(api.CodeConflict, "roll %d is %s: it holds no lock", r.ID, r.Status)
	}
	r.Epoch, r.By, r.Status, r.Why, r.Changed, r.Ask = r.Epoch+1, c.By, api.RollAborted, c.Why, now, ""
	return nil
}
