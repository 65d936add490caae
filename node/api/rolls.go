package api

import (
	"encoding/json"
	"fmt"
	"time"
)

// Limits of what a roll's journal takes, in bytes.
const (
	MaxRollText = 2048      // of a word or sentence: who, why, a note
	MaxRollPlan = 256 << 10 // of a plan, and of a report
	MaxRollData = 16 << 10  // of what is noted of one node
)

// RollSilence is how long the holder of a roll's lock may be silent before somebody
// else may take the roll over.
const RollSilence = 15 * time.Second

// RollStatus says whether a roll goes on.
type RollStatus string

// The statuses. A roll that runs or is paused holds the cluster's one lock.
const (
	RollRunning RollStatus = "running"
	RollPaused  RollStatus = "paused"
	RollDone    RollStatus = "done"
	RollAborted RollStatus = "aborted"
)

// Open reports whether the roll holds the lock.
func (s RollStatus) Open() bool { return s == RollRunning || s == RollPaused }

// What may be asked of the holder of a running roll.
const (
	RollAskPause = "pause"
	RollAskAbort = "abort"
)

// Roll is a roll with its journal: the answer of GET /v1/rolls/{roll}.
type Roll struct {
	ID      uint64          `json:"id"`    // counted from 1 in each cluster
	Epoch   uint64          `json:"epoch"` // rises whenever another takes the roll, and from roll to roll
	By      string          `json:"by"`    // who holds it
	Status  RollStatus      `json:"status"`
	Ask     string          `json:"ask,omitempty"` // of the holder, by somebody else: pause or abort
	Why     string          `json:"why,omitempty"` // it paused, or was aborted
	Began   time.Time       `json:"began"`
	Changed time.Time       `json:"changed"`
	Plan    json.RawMessage `json:"plan,omitempty"`
	Report  json.RawMessage `json:"report,omitempty"`
	Nodes   []RollNode      `json:"nodes,omitempty"` // in the order of their ids
	// Silent is for how many milliseconds the holder of a running roll has not been
	// heard. After RollSilence somebody else may take the roll.
	Silent *int64 `json:"operator_silent_ms,omitempty"`
}

// Alone returns for how long the holder of a running roll has been silent, and
// whether that is long enough for somebody else to take the roll.
func (r *Roll) Alone() (time.Duration, bool) {
	if r.Status != RollRunning || r.Silent == nil {
		return 0, false
	}
	silent := time.Duration(*r.Silent) * time.Millisecond
	return silent, silent >= RollSilence
}

// RollNode is what a roll did with a node.
type RollNode struct {
	Node  string          `json:"node"`
	State string          `json:"state"` // the last one
	Note  string          `json:"note,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	Steps []RollStep      `json:"steps"` // the last ones, oldest first
}

// RollStep is one state that a node came to.
type RollStep struct {
	State string    `json:"state"`
	At    time.Time `json:"at"`
}

// RollList is what GET /v1/rolls answers: the newest first, without plans, reports
// and nodes.
type RollList struct {
	Rolls []Roll `json:"rolls"`
}

// RollAction is what is to be done with a roll. Numbers are in the meta group's
// log: append only.
type RollAction byte

// The actions.
const (
	RollStart  RollAction = iota + 1 // take the lock
	RollTake                         // go on with a roll whose holder paused, or is silent
	RollNote                         // note the state of a node
	RollEnd                          // pause, finish or abort it
	RollAsk                          // ask its holder to pause or to abort
	RollUnlock                       // take the lock away from it
	RollRenew                        // say that the holder lives
)

// String returns the action's name, as in paths.
func (a RollAction) String() string {
	switch a {
	case RollStart:
		return "start"
	case RollTake:
		return "take"
	case RollNote:
		return "note"
	case RollEnd:
		return "end"
	case RollAsk:
		return "ask"
	case RollUnlock:
		return "unlock"
	case RollRenew:
		return "renew"
	}
	return fmt.Sprintf("action%d", byte(a))
}

// RollChange is the body of POST /v1/rolls and POST /v1/rolls/{roll}/ACTION. Each
// action takes some of the fields.
type RollChange struct {
	Epoch  uint64          `json:"epoch,omitempty"`  // of the caller; take: the one that ends
	By     string          `json:"by,omitempty"`     // start, take, unlock; "" is the client's name
	Force  bool            `json:"force,omitempty"`  // take: also from a holder that lives
	Node   string          `json:"node,omitempty"`   // note
	State  string          `json:"state,omitempty"`  // note
	Note   string          `json:"note,omitempty"`   // note
	Status RollStatus      `json:"status,omitempty"` // end
	Ask    string          `json:"ask,omitempty"`    // ask
	Why    string          `json:"why,omitempty"`    // end, unlock
	Data   json.RawMessage `json:"data,omitempty"`   // start: the plan; note: of the node; end: the report
}

// Check returns a bad-request or too-large error unless the change makes sense for
// an action.
func (c *RollChange) Check(a RollAction) error {
	if err := c.checkFields(a); err != nil {
		return err
	}
	switch a {
	case RollNote:
		if err := CheckNode(c.Node); err != nil {
			return err
		}
		if c.State == "" {
			return &Error{Code: CodeBadRequest, Message: "the note has no state"}
		}
	case RollEnd:
		if c.Status != RollPaused && c.Status != RollDone && c.Status != RollAborted {
			return &Error{Code: CodeBadRequest, Message: fmt.Sprintf("the status is %q: want paused, done or aborted", clip(string(c.Status)))}
		}
	case RollAsk:
		if c.Ask != RollAskPause && c.Ask != RollAskAbort {
			return &Error{Code: CodeBadRequest, Message: fmt.Sprintf("asked for is %q: want pause or abort", clip(c.Ask))}
		}
	case RollStart, RollTake, RollUnlock, RollRenew:
	}
	for _, s := range []string{c.By, c.State, c.Note, c.Why} {
		if len(s) > MaxRollText {
			return &Error{Code: CodeTooLarge, Message: fmt.Sprintf("a text of the roll has %d bytes: the limit is %d", len(s), MaxRollText)}
		}
	}
	limit := MaxRollPlan
	if a == RollNote {
		limit = MaxRollData
	}
	if len(c.Data) > limit {
		return &Error{Code: CodeTooLarge, Message: fmt.Sprintf("the roll's data has %d bytes: the limit is %d", len(c.Data), limit)}
	}
	return nil
}

// checkFields returns a bad-request error that names a field which the action does
// not take. All take an epoch, and whose they are.
func (c *RollChange) checkFields(a RollAction) error {
	for _, f := range []struct {
		name  string
		given bool
		takes bool
	}{
		{"force", c.Force, a == RollTake},
		{"node", c.Node != "", a == RollNote},
		{"state", c.State != "", a == RollNote},
		{"note", c.Note != "", a == RollNote},
		{"status", c.Status != "", a == RollEnd},
		{"ask", c.Ask != "", a == RollAsk},
		{"why", c.Why != "", a == RollEnd || a == RollUnlock},
		{"data", len(c.Data) > 0, a == RollStart || a == RollNote || a == RollEnd},
	} {
		if f.given && !f.takes {
			return &Error{Code: CodeBadRequest, Message: fmt.Sprintf("%s of a roll takes no %q", a, f.name)}
		}
	}
	return nil
}
