package api

// Space is how much room a file system has, in bytes.
type Space struct {
	Available uint64 `json:"available"`
	Total     uint64 `json:"total"`
	Reserve   uint64 `json:"reserve"`        // below it the node takes no rows
	Ballast   uint64 `json:"ballast"`        // held by a file; 0 once it had to go
	Full      bool   `json:"full,omitempty"` // the node takes no rows
}
