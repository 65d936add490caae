package api

import (
	"fmt"
	"time"
)

// Times of a claim on a node's drain.
const (
	DefaultClaim = 30 * time.Second // how long a claim lasts if its maker does not say
	MaxClaim     = 24 * time.Hour
)

// NodeAction is what an operator wants of a node. Numbers are on the wire: append
// only.
type NodeAction byte

// The actions.
const (
	NodeState   NodeAction = iota + 1 // say how it is
	NodeDrain                         // hand everything over, and keep it so while the claim lasts
	NodeUndrain                       // end the claim: take tables again
	NodeRestart                       // restart in place
	NodeCerts                         // look at the files of the certificates
)

// String returns the action's name, as in paths and logs.
func (a NodeAction) String() string {
	switch a {
	case NodeState:
		return "state"
	case NodeDrain:
		return "drain"
	case NodeUndrain:
		return "undrain"
	case NodeRestart:
		return "restart"
	case NodeCerts:
		return "certs/reload"
	}
	return fmt.Sprintf("action%d", byte(a))
}

// NodeOrder is an action with what it needs: the body of
// POST /v1/node/{drain,undrain,restart}.
type NodeOrder struct {
	// TTL is how long a drain's claim lasts unless it is renewed, as "30s";
	// "" is DefaultClaim.
	TTL string `json:"ttl,omitempty"`
	// Epoch orders claims: one with a lower epoch than another that the node has
	// seen is void, and so is one that ran out. 0 with drain takes the next epoch,
	// unless somebody else's claim lasts; with undrain it ends whatever claim
	// there is.
	Epoch uint64 `json:"epoch,omitempty"`
	By    string `json:"by,omitempty"` // who, for people; "" is the client's name
	// Roll is the roll that gives the order, whose epoch Epoch is then: the node
	// obeys only if that is still the roll's, as a quorum knows it, and restarts
	// only while that roll's claim on its drain lasts. 0: no roll.
	Roll uint64 `json:"roll,omitempty"`
	// Binary is, of restart, the SHA-256 of the binary to run from then on, which is
	// on the node's machine already; "": the one at the path of the one that runs.
	Binary string `json:"binary,omitempty"`
}

// Duration returns the TTL, or a bad-request error.
func (o *NodeOrder) Duration() (time.Duration, error) { return parseTTL(o.TTL, DefaultClaim) }

// parseTTL reads a time to live, "" being a default, or returns a bad-request error.
func parseTTL(text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > MaxClaim {
		return 0, &Error{
			Code:    CodeBadRequest,
			Message: fmt.Sprintf("the ttl is %q: want 1s to %s, as in 30s or 10m", clip(text), MaxClaim),
		}
	}
	return d, nil
}

// Claim is somebody's word that a node must own nothing.
type Claim struct {
	By     string `json:"by"`
	Epoch  uint64 `json:"epoch"`
	EndsIn string `json:"ends_in"` // unless it is renewed, as "29.5s"
	Roll   uint64 `json:"roll,omitempty"`
}

// NodeReport is a node's answer to a NodeOrder.
type NodeReport struct {
	Node        string      `json:"node"`
	Incarnation Incarnation `json:"incarnation"`
	Phase       string      `json:"phase"`
	Draining    bool        `json:"draining"`
	Owned       int         `json:"tables_owned"`
	Claim       *Claim      `json:"claim,omitempty"`

	Certificates *Certificates `json:"certificates,omitempty"` // absent in a plaintext cluster
}

// Node is a member as GET /v1/nodes lists it.
type Node struct {
	Member

	Owned  int    `json:"tables_owned"`
	Leads  bool   `json:"meta_leader"`
	Phase  string `json:"phase,omitempty"` // absent of a node that did not answer
	Claim  *Claim `json:"claim,omitempty"`
	Silent string `json:"silent,omitempty"` // why a node with a lease did not answer

	Certificates *Certificates `json:"certificates,omitempty"`
}

// NodeList is what GET /v1/nodes answers.
type NodeList struct {
	Nodes []Node `json:"nodes"`
}
