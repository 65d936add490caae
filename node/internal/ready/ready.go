package ready

import (
	"fmt"
	"time"

	"tidal/node/api"
)

// Phase is where a node is in its life.
type Phase string

// The phases, in their order.
const (
	Prepare Phase = "prepare"
	Listen  Phase = "listen"
	Start   Phase = "start"
	Serving Phase = "serving"
	Drain   Phase = "drain"
	Stop    Phase = "stop"
)

// maxBehind bounds how many tables are named; the rest is counted.
const maxBehind = 20

// Input is all that readiness depends on.
type Input struct {
	Phase    Phase
	Formed   bool          // the node belongs to a cluster
	Leased   bool          // its lease is granted, and nobody has said that it is gone
	Draining bool          // an operator's drain; a stop has its phase
	Members  int           // of the cluster
	Heard    int           // of those, how many were heard lately, itself included
	Full     string        // what the disk has left, if that is hardly anything; else ""
	Fenced   []string      // tables whose replicas here differ from others and serve nothing
	Stalled  time.Duration // how long the raft loop has stood still, if that is too long; else 0
	Meta     Replica
	Tables   []Replica // that this node holds
}

// Replica is one replica on this node.
type Replica struct {
	Table     string // name
	HasLeader bool   // some live node knows a leader of its group
	Applied   uint64
	Latch     Latch // as it was when Applied was read

	Receives bool    // a snapshot is on its way here
	Snapshot float64 // which part of it is here, from 0 to 1
}

// Reasons returns what keeps the node from being ready: nothing if it is. While
// it starts, or stops, that alone is said.
func Reasons(in Input) []api.Reason {
	switch in.Phase {
	case Serving:
		return serving(in)
	case Drain:
		return []api.Reason{{Code: "draining", Detail: "the node hands over its tables and will stop"}}
	case Stop:
		return []api.Reason{{Code: "stopping", Detail: "the node stops"}}
	case Prepare, Listen, Start:
	}
	reasons := []api.Reason{{Code: "starting", Detail: "the node is in phase " + string(in.Phase)}}
	if in.Phase == Start && !in.Formed {
		reasons = append(reasons, forming())
	}
	return reasons
}

func forming() api.Reason {
	return api.Reason{Code: "forming", Detail: "the node belongs to no cluster yet"}
}

// Stalled is the reason of a node whose raft loop has stood still for so long.
func Stalled(still time.Duration) api.Reason {
	return api.Reason{
		Code:   "stalled",
		Detail: fmt.Sprintf("the raft loop has stood still for %v: the disk does not answer, most likely", still.Truncate(100*time.Millisecond)),
	}
}

func serving(in Input) []api.Reason {
	var reasons []api.Reason
	if in.Stalled > 0 {
		reasons = append(reasons, Stalled(in.Stalled))
	}
	if !in.Formed {
		return append(reasons, forming())
	}
	if in.Full != "" {
		reasons = append(reasons, api.Reason{Code: "disk-full", Detail: in.Full})
	}
	if !in.Leased {
		reasons = append(reasons, api.Reason{Code: "no-lease", Detail: "the node's lease is not granted"})
	}
	if in.Draining {
		reasons = append(reasons, api.Reason{Code: "draining", Detail: "the node was told to hand over its tables"})
	}
	if 2*in.Heard < in.Members {
		reasons = append(reasons, api.Reason{
			Code:   "isolated",
			Detail: fmt.Sprintf("the node hears %d of %d members", in.Heard, in.Members),
		})
	}
	reasons = append(reasons, fenced(in.Fenced)...)
	if !in.Meta.Latch.Level() {
		r := behind(&in.Meta)
		r.Code, r.Table = "meta-behind", ""
		reasons = append(reasons, r)
	}
	return append(reasons, tables(in.Tables)...)
}

// fenced returns a reason for each table whose replica here is fenced.
func fenced(tables []string) []api.Reason {
	var reasons []api.Reason
	for _, name := range tables[:min(len(tables), maxBehind)] {
		reasons = append(reasons, api.Reason{
			Code: "replica-differs", Table: name, Detail: "the replica here differs from what most others have, and serves nothing",
		})
	}
	if more := len(tables) - len(reasons); more > 0 {
		reasons = append(reasons, api.Reason{Code: "replica-differs", Detail: fmt.Sprintf("and %d more tables", more)})
	}
	return reasons
}

// tables returns a reason for each table that is behind. One without a leader
// that anybody knows cannot be served by anyone, so it holds no node up.
func tables(replicas []Replica) []api.Reason {
	var reasons []api.Reason
	more := 0
	for i := range replicas {
		r := &replicas[i]
		switch {
		case r.Latch.Level() || !r.HasLeader:
		case len(reasons) < maxBehind:
			reasons = append(reasons, behind(r))
		default:
			more++
		}
	}
	if more > 0 {
		reasons = append(reasons, api.Reason{Code: "table-behind", Detail: fmt.Sprintf("and %d more tables", more)})
	}
	return reasons
}

func behind(r *Replica) api.Reason {
	reason := api.Reason{Code: "table-behind", Table: r.Table}
	goal, known := r.Latch.Goal()
	switch {
	case !known:
		reason.Detail = "no leader has said yet how far it is"
	case r.Applied >= goal.Index:
		reason.Detail = fmt.Sprintf("has just reached entry %d", goal.Index)
	default:
		reason.Lag = goal.Index - r.Applied
		reason.Detail = fmt.Sprintf("has applied %d of %d entries", r.Applied, goal.Index)
	}
	if r.Receives {
		reason.Snapshot = &r.Snapshot
		reason.Detail += fmt.Sprintf(", and receives a snapshot, of which %.0f %% are here", 100*r.Snapshot)
	}
	return reason
}
