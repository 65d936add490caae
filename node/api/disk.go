package api

// DiskMember is a founder of a cluster, as a stopped node's disk has it.
type DiskMember struct {
	Node    string `json:"node"`
	Disk    DiskID `json:"disk"`
	Address string `json:"address"`
}

// DiskReplica is a replica on the disk of a stopped node. Raft ids are in hex.
type DiskReplica struct {
	Group       TableID  `json:"group"`
	Name        string   `json:"name"` // meta, or the table's; "" if the metadata there does not know it
	Replica     string   `json:"replica"`
	Term        uint64   `json:"term"`
	Vote        string   `json:"vote"` // replica voted for in that term; "0": none
	Commit      uint64   `json:"commit"`
	Applied     uint64   `json:"applied"`
	AppliedTerm uint64   `json:"applied_term"`
	First       uint64   `json:"first"` // index of the log's first entry
	Last        uint64   `json:"last"`  // and of its last
	Rows        int      `json:"rows"`  // -1: it is no table's
	Voters      []string `json:"voters"`
	Learners    []string `json:"learners,omitempty"`
	Outgoing    []string `json:"outgoing,omitempty"` // voters of the configuration that is being left
}

// DiskEntry is an entry of a log on the disk of a stopped node.
type DiskEntry struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	Kind  string `json:"kind"` // empty, configuration, write, or a command of the metadata
	Size  int    `json:"size"` // of its data, in bytes
}
