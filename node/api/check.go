package api

// ReplicaState is what a check found of a replica.
type ReplicaState string

// The states.
const (
	ReplicaSame      ReplicaState = "same"      // it has what more than half of the replicas have
	ReplicaDiffers   ReplicaState = "differs"   // it does not
	ReplicaUnchecked ReplicaState = "unchecked" // it gave no answer that could be compared
)

// TableCheck is what POST /v1/tables/{table}/check answers: whether the replicas of
// a table have the same bytes at one place in its order.
type TableCheck struct {
	Table    string           `json:"table"`
	ID       TableID          `json:"id"`
	Position string           `json:"position"` // that was compared, as in Tidal-Position
	Replicas []CheckedReplica `json:"replicas"`
}

// CheckedReplica is one replica that was checked.
type CheckedReplica struct {
	Node  string       `json:"node"`
	ID    string       `json:"id"` // raft id in hex
	State ReplicaState `json:"state"`
	Hash  string       `json:"hash,omitempty"` // SHA-256 of rows, remembered answers and clock
	Why   string       `json:"why,omitempty"`  // of one that is unchecked
}

// Count returns how many replicas are in a state.
func (c *TableCheck) Count(s ReplicaState) int {
	n := 0
	for _, r := range c.Replicas {
		if r.State == s {
			n++
		}
	}
	return n
}
