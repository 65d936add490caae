package api

import "time"

// Headers of the HTTP API.
const (
	HeaderRouteError  = "Tidal-Route-Error" // routing code of a refusal
	HeaderTimeout     = "Tidal-Timeout"     // the client's patience, as 1.5s or 250ms
	HeaderLag         = "Tidal-Lag"         // entries that a local read's replica lacks
	HeaderNode        = "Tidal-Node"        // node that answered
	HeaderOwner       = "Tidal-Owner"       // node that served the request as owner
	HeaderPosition    = "Tidal-Position"    // of a table: what the node, or the client, knows to be committed
	HeaderIdempotency = "Idempotency-Key"
)

// TableSettings is the body of PUT /v1/tables/{table}.
type TableSettings struct {
	Replicas int `json:"replicas,omitempty"` // 0: DefaultReplicas, or the number of nodes if that is smaller
}

// Table is what GET /v1/tables/{table} answers.
type Table struct {
	Name     string    `json:"name"`
	ID       TableID   `json:"id"`
	Owner    string    `json:"owner"` // "" while nobody owns it
	Term     uint64    `json:"term"`
	Place    string    `json:"place"` // node that should own it now
	Replicas []Replica `json:"replicas"`

	// These are in the windows of GET /cluster/status alone.

	State    TableState `json:"state,omitempty"`
	Frontier *uint64    `json:"frontier,omitempty"`          // highest commit index that any replica tells; absent while none does
	Writes   *float64   `json:"writes_per_second,omitempty"` // entries, over the last seconds; absent while nobody knows
	// P99 is how many seconds its owner took for a write, but for the slowest 1 %,
	// over the last 5 to 10 seconds; absent if there was none.
	P99 *float64 `json:"write_p99_seconds,omitempty"`
}

// TableList is what GET /v1/tables answers.
type TableList struct {
	Tables []Table `json:"tables"`
}

// Replica is one copy of a table.
type Replica struct {
	Node    string `json:"node"`
	ID      string `json:"id"`                // raft id in hex
	Voter   bool   `json:"voter"`             // counts for quorums
	Leaving bool   `json:"leaving,omitempty"` // goes once the table can do without it
	Lag     *int64 `json:"lag,omitempty"`     // entries behind the owner; absent while nobody knows
	Live    bool   `json:"live"`              // its node has a lease
}

// Lease is what the cluster knows of a live incarnation.
type Lease struct {
	Node        string      `json:"node"`
	Incarnation Incarnation `json:"incarnation"`
	Address     string      `json:"address"`
	Version     string      `json:"version"`
	Zone        string      `json:"zone,omitempty"`
	Draining    bool        `json:"draining"`
	// EndsIn is in how many milliseconds the lease ends unless it is renewed: the
	// meta leader alone knows, and only in windows of GET /cluster/status.
	EndsIn *int64 `json:"ends_in_ms,omitempty"`
}

// Member is a node of the cluster, alive or not.
type Member struct {
	Node    string `json:"node"`
	Disk    DiskID `json:"disk"`
	Address string `json:"address"` // from the member list or the last lease
	Voter   bool   `json:"meta_voter"`
	Live    bool   `json:"live"`
	// DiskFull says that the node's disk has hardly any space left: it takes no rows.
	DiskFull bool   `json:"disk_full,omitempty"`
	Lease    *Lease `json:"lease,omitempty"`
	// Silent is for how many milliseconds the answering node has heard nothing of
	// it, in windows of GET /cluster/status; absent of itself, and of a node that it
	// has never heard.
	Silent *int64 `json:"silent_ms,omitempty"`
}

// Status is what GET /cluster/status answers: the cluster as this node sees it.
type Status struct {
	Cluster    string    `json:"cluster"`
	ClusterID  ClusterID `json:"cluster_id"`
	Node       string    `json:"node"` // that answers
	MetaLeader string    `json:"meta_leader"`
	MetaTerm   uint64    `json:"meta_term"`
	Members    []Member  `json:"members"`
	Tables     []Table   `json:"tables"`
	Waiting    string    `json:"waiting,omitempty"`  // what this node waits for before it serves
	Refusals   []Refusal `json:"refusals,omitempty"` // of nodes that this one refuses, or that refuse it
	Time       time.Time `json:"time"`
	Window     *Window   `json:"window,omitempty"` // if a part of the tables was asked for
}

// LocalStatus is what GET /cluster/status/local answers: this node alone.
type LocalStatus struct {
	Node        string       `json:"node"`
	Incarnation Incarnation  `json:"incarnation"`
	Disk        DiskID       `json:"disk"`
	ClusterID   ClusterID    `json:"cluster_id"`
	Version     string       `json:"version"`
	Draining    bool         `json:"draining"`
	Phase       string       `json:"phase"`  // prepare, listen, start, serving, drain, stop
	Tables      []LocalTable `json:"tables"` // none if they were not asked for
	Ready       bool         `json:"ready"`  // answers 200 on /health
	Reasons     []Reason     `json:"reasons,omitempty"`
	Started     time.Time    `json:"started"`
	Owned       int          `json:"tables_owned"`
	Held        int          `json:"tables_held"`
	Claim       *Claim       `json:"claim,omitempty"`      // on its drain
	Space       *Space       `json:"disk_space,omitempty"` // of the data directory; absent where it cannot be told
	// Certificate is when the node's own one expires; absent in a plaintext cluster.
	Certificate *time.Time    `json:"certificate_expires,omitempty"`
	Requests    RequestCounts `json:"requests"` // of this run

	Certificates *Certificates `json:"certificates,omitempty"` // absent in a plaintext cluster
	Connections  []CertConns   `json:"connections,omitempty"`  // of clients and nodes, by their certificates
}

// LocalTable is a replica that this node holds.
type LocalTable struct {
	Name    string  `json:"name"`
	ID      TableID `json:"id"`
	Replica string  `json:"replica"` // raft id in hex
	Leads   bool    `json:"leads"`
	Owns    bool    `json:"owns"` // leads, and has applied an entry of its own term
	Term    uint64  `json:"term"`
	Commit  uint64  `json:"commit"`
	Applied uint64  `json:"applied"`
}

// Health is the body of the health endpoints.
type Health struct {
	Status  string   `json:"status"` // ok or unavailable
	Node    string   `json:"node"`
	Phase   string   `json:"phase"`
	Reasons []Reason `json:"reasons,omitempty"` // why not ok
}

// Reason is one thing that keeps a node from being ready.
type Reason struct {
	Code   string `json:"code"` // of a fixed set: starting, forming, no-lease, refused, draining, meta-behind, table-behind, isolated, stalled, disk-full, stopping
	Detail string `json:"detail"`
	Table  string `json:"table,omitempty"`
	Lag    uint64 `json:"lag,omitempty"`
	// Snapshot is which part of a snapshot has arrived, from 0 to 1; absent while
	// none is on its way.
	Snapshot *float64 `json:"snapshot,omitempty"`
}

// Problem is the RFC 9457 body of an error answer.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   Code   `json:"code"`
	Hint   string `json:"hint,omitempty"`
	Owner  string `json:"owner,omitempty"`
}
