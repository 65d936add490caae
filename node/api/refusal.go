package api

import "time"

// Refusal is a node's word that it does not talk to another: to a disk that is not
// the one that it knows, or to a node of another cluster. It is listed for ten
// minutes after the last attempt.
type Refusal struct {
	Node        string      `json:"node"`        // that is refused
	Incarnation Incarnation `json:"incarnation"` // of it
	Disk        DiskID      `json:"disk"`        // that it runs on
	By          string      `json:"by"`          // node that refuses it
	Reason      string      `json:"reason"`
	Hint        string      `json:"hint,omitempty"`
	Since       time.Time   `json:"since"` // first time in a row
	Last        time.Time   `json:"last"`
}
