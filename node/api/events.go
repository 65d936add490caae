package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// EventKind is what an event tells.
type EventKind string

// The kinds. Those of the cluster are told by every node as it sees them; those of
// a node only by the node itself.
const (
	EventHeartbeat    EventKind = "heartbeat"      // nothing happened: the stream lives
	EventGap          EventKind = "gap"            // Count events are not kept any more
	EventLease        EventKind = "lease"          // cluster: Member got a lease as Incarnation
	EventLeaseEnded   EventKind = "lease-ended"    // cluster: that of Member, as Incarnation
	EventDraining     EventKind = "draining"       // cluster: Member hands over what it owns
	EventUndrained    EventKind = "undrained"      // cluster: Member takes tables again
	EventMetaLeader   EventKind = "meta-leader"    // cluster: To leads the meta group in Term
	EventOwner        EventKind = "owner"          // cluster: Tables went from From to To
	EventTableCreated EventKind = "table-created"  // cluster
	EventTableDropped EventKind = "table-dropped"  // cluster
	EventReplicas     EventKind = "replicas"       // cluster: Tables have their replicas elsewhere
	EventPhase        EventKind = "phase"          // node: it went from phase From to To
	EventClaim        EventKind = "claim"          // node: To claims its drain
	EventSnapshot     EventKind = "snapshot"       // node: Count snapshots were sent, taken or failed, as Why says
	EventRefused      EventKind = "refused"        // node: Count requests were refused with the code Why
	EventFenced       EventKind = "replica-fenced" // node: its replicas of Tables differ from most others and serve nothing
	EventNodeRefused  EventKind = "node-refused"   // node: From does not talk to Member, which runs as Incarnation
)

// EventKinds returns all kinds, in the order of docs/events.md.
func EventKinds() []EventKind {
	return []EventKind{
		EventHeartbeat, EventGap, EventLease, EventLeaseEnded, EventDraining, EventUndrained, EventMetaLeader, EventOwner,
		EventTableCreated, EventTableDropped, EventReplicas, EventPhase, EventClaim, EventSnapshot, EventRefused, EventFenced, EventNodeRefused,
	}
}

// OfNode reports whether only the node that it happened to tells the kind.
func (k EventKind) OfNode() bool {
	switch k {
	case EventPhase, EventClaim, EventSnapshot, EventRefused, EventFenced, EventNodeRefused:
		return true
	default:
		return false
	}
}

// MaxEventTables is how many tables an event names; Count has all of them.
const MaxEventTables = 10

// Event is one line of GET /cluster/events.
type Event struct {
	ID          string       `json:"id"` // of the node's incarnation and a number, as a.17.3f2a9c1b/42
	Time        time.Time    `json:"time"`
	Node        string       `json:"node"` // that tells it
	Kind        EventKind    `json:"kind"`
	Member      string       `json:"member,omitempty"` // node that it is about
	Incarnation *Incarnation `json:"incarnation,omitempty"`
	Tables      []string     `json:"tables,omitempty"` // at most MaxEventTables
	Count       int          `json:"count,omitempty"`
	From        string       `json:"from,omitempty"`
	To          string       `json:"to,omitempty"`
	Term        uint64       `json:"term,omitempty"`
	Why         string       `json:"why,omitempty"`
}

// EventID names the event of that number of an incarnation.
func EventID(inc Incarnation, n uint64) string { return inc.String() + "/" + strconv.FormatUint(n, 10) }

// ParseEventID reads what EventID wrote.
func ParseEventID(id string) (Incarnation, uint64, error) {
	of, number, ok := strings.Cut(id, "/")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return Incarnation{}, 0, fmt.Errorf("event id %q: want INCARNATION/NUMBER", clip(id))
	}
	inc, err := ParseIncarnation(of)
	if err != nil {
		return Incarnation{}, 0, fmt.Errorf("event id %q: %w", clip(id), err)
	}
	return inc, n, nil
}

// String says in one sentence what happened, for people.
func (e Event) String() string {
	switch e.Kind {
	case EventGap:
		return fmt.Sprintf("%d events are not kept any more", e.Count)
	case EventLease:
		return "node " + e.Member + " is live as " + e.incarnation()
	case EventLeaseEnded:
		return "node " + e.Member + " has no lease any more" + because(e.Why)
	case EventDraining:
		return "node " + e.Member + " hands over what it owns"
	case EventUndrained:
		return "node " + e.Member + " takes tables again"
	case EventMetaLeader:
		return e.metaLeader()
	case EventOwner:
		if e.From == "" {
			return e.tables() + " owned by " + e.To + because(e.Why)
		}
		return e.tables() + " from " + e.From + " to " + e.To + because(e.Why)
	case EventTableCreated:
		return e.tables() + " created"
	case EventTableDropped:
		return e.tables() + " dropped"
	case EventReplicas:
		return e.tables() + ": replicas on " + orNone(e.From) + " are now on " + orNone(e.To)
	case EventPhase:
		return "node " + e.Member + ": phase " + e.To
	case EventClaim:
		if e.To == "" {
			return "node " + e.Member + ": the claim of " + e.From + " on its drain is over"
		}
		return "node " + e.Member + ": drain claimed by " + e.To
	case EventSnapshot:
		return fmt.Sprintf("node %s: %d snapshots %s", e.Member, e.Count, e.Why)
	case EventRefused:
		return fmt.Sprintf("node %s refused %d requests: %s%s", e.Member, e.Count, e.Why, e.ofTables())
	case EventFenced:
		return "node " + e.Member + ": " + e.tables() + ": the replica differs from most others, and serves nothing"
	case EventNodeRefused:
		who := "node " + e.Member
		if e.Incarnation != nil {
			who += ", running as " + e.incarnation() + ","
		}
		return who + " is refused by " + e.From + because(e.Why)
	case EventHeartbeat:
	}
	return string(e.Kind)
}

func (e Event) incarnation() string {
	if e.Incarnation == nil {
		return "?"
	}
	return e.Incarnation.String()
}

func (e Event) metaLeader() string {
	if e.To == "" {
		return "the metadata has no leader"
	}
	return fmt.Sprintf("metadata led by %s in term %d", e.To, e.Term)
}

func (e Event) tables() string {
	switch {
	case len(e.Tables) == 0:
		return fmt.Sprintf("%d tables", e.Count)
	case e.Count <= 1:
		return "table " + e.Tables[0]
	case e.Count <= 3 && len(e.Tables) == e.Count:
		return "tables " + strings.Join(e.Tables, ", ")
	}
	return fmt.Sprintf("%d tables (%s and more)", e.Count, e.Tables[0])
}

func (e Event) ofTables() string {
	if len(e.Tables) == 0 {
		return ""
	}
	return " (" + strings.Join(e.Tables, ", ") + ")"
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
