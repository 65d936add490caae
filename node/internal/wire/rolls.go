package wire

import (
	"fmt"

	"tidal/node/api"
)

// maxSteps bounds how many states of a node a roll's journal keeps.
const maxSteps = 64

// RollCommand is a change of a roll; see api.RollChange.
type RollCommand struct {
	Action api.RollAction
	Roll   uint64
	At     int64 // Unix time in milliseconds, for people
	Force  bool  // for the leader that lets it pass
	Epoch  uint64
	By     string
	Node   string
	State  string
	Note   string
	Status api.RollStatus
	Ask    string
	Why    string
	Data   []byte
}

func appendRollCommand(dst []byte, c *RollCommand) []byte {
	dst = append(dst, byte(c.Action))
	dst = AppendUvarint(AppendUvarint(dst, c.Roll), uint64(c.At))
	dst = AppendBool(dst, c.Force)
	dst = AppendUvarint(dst, c.Epoch)
	for _, s := range []string{c.By, c.Node, c.State, c.Note, string(c.Status), c.Ask, c.Why} {
		dst = AppendString(dst, s)
	}
	return AppendBytes(dst, c.Data)
}

func readRollCommand(r *Reader) RollCommand {
	c := RollCommand{
		Action: api.RollAction(r.Byte("action")),
		Roll:   r.Uvarint("roll"),
		At:     int64(r.Uvarint("time")),
		Force:  r.Bool("force"),
		Epoch:  r.Uvarint("epoch"),
		By:     r.String("by", maxText),
		Node:   r.String("node", api.MaxNode),
		State:  r.String("state", maxText),
		Note:   r.String("note", maxText),
		Status: api.RollStatus(r.String("status", maxText)),
		Ask:    r.String("ask", maxText),
		Why:    r.String("why", maxText),
	}
	c.Data = append([]byte(nil), r.Bytes("data", api.MaxRollPlan)...)
	return c
}

// Roll is a roll. Its nodes are records of their own.
type Roll struct {
	ID             uint64
	Epoch          uint64
	By             string
	Status         api.RollStatus
	Ask            string
	Why            string
	Began, Changed int64         // Unix time in milliseconds, for people
	Made           api.RequestID // of the command that started it
	Taken          api.RequestID // of the last that changed its epoch
	Plan, Report   []byte
	Nodes          []RollNode // in the order of their ids
}

// AppendRoll appends the stored form of r, without its nodes.
func AppendRoll(dst []byte, r *Roll) []byte {
	dst = append(dst, recordVersion)
	dst = AppendUvarint(AppendUvarint(dst, r.ID), r.Epoch)
	for _, s := range []string{r.By, string(r.Status), r.Ask, r.Why} {
		dst = AppendString(dst, s)
	}
	dst = AppendUvarint(AppendUvarint(dst, uint64(r.Began)), uint64(r.Changed))
	dst = append(append(dst, r.Made[:]...), r.Taken[:]...)
	return AppendBytes(AppendBytes(dst, r.Plan), r.Report)
}

// DecodeRoll reads the form of AppendRoll.
func DecodeRoll(b []byte) (Roll, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Roll{}, fmt.Errorf("roll: %w", err)
	}
	v := Roll{
		ID: r.Uvarint("id"), Epoch: r.Uvarint("epoch"),
		By: r.String("by", maxText), Status: api.RollStatus(r.String("status", maxText)),
		Ask: r.String("ask", maxText), Why: r.String("why", maxText),
		Began: int64(r.Uvarint("began")), Changed: int64(r.Uvarint("changed")),
		Made: r.Array16("made"), Taken: r.Array16("taken"),
	}
	v.Plan = append([]byte(nil), r.Bytes("plan", api.MaxRollPlan)...)
	v.Report = append([]byte(nil), r.Bytes("report", api.MaxRollPlan)...)
	if err := r.Done(); err != nil {
		return Roll{}, fmt.Errorf("roll: %w", err)
	}
	return v, nil
}

// RollNode is what a roll did with a node.
type RollNode struct {
	Node  string
	State string
	Note  string
	Data  []byte
	Steps []RollStep // the last ones, oldest first
}

// RollStep is a state that a node came to.
type RollStep struct {
	State string
	At    int64 // Unix time in milliseconds, for people
}

// Step notes another state, and forgets the oldest ones of too many.
func (n *RollNode) Step(s RollStep) {
	steps := append(append(make([]RollStep, 0, len(n.Steps)+1), n.Steps...), s)
	n.Steps = steps[max(0, len(steps)-maxSteps):]
}

// AppendRollNode appends the stored form of n.
func AppendRollNode(dst []byte, n *RollNode) []byte {
	dst = append(dst, recordVersion)
	dst = AppendString(AppendString(AppendString(dst, n.Node), n.State), n.Note)
	dst = AppendBytes(dst, n.Data)
	dst = AppendUvarint(dst, uint64(len(n.Steps)))
	for _, s := range n.Steps {
		dst = AppendUvarint(AppendString(dst, s.State), uint64(s.At))
	}
	return dst
}

// DecodeRollNode reads the form of AppendRollNode.
func DecodeRollNode(b []byte) (RollNode, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return RollNode{}, fmt.Errorf("node of a roll: %w", err)
	}
	n := RollNode{Node: r.String("node", api.MaxNode), State: r.String("state", maxText), Note: r.String("note", maxText)}
	n.Data = append([]byte(nil), r.Bytes("data", api.MaxRollPlan)...)
	n.Steps = make([]RollStep, r.Count("steps", 2))
	for i := range n.Steps {
		n.Steps[i] = RollStep{State: r.String("step", maxText), At: int64(r.Uvarint("time of a step"))}
	}
	if err := r.Done(); err != nil {
		return RollNode{}, fmt.Errorf("node of a roll: %w", err)
	}
	return n, nil
}
