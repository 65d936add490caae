package api

// Space is how much room a file system has, in bytes.
type Space struct {
	Available uint64 `json:"available"`
	Total     uint64 `json:"total"`
}

// Requests counts the row requests that entered at a node since it started.
type Requests struct {
	Served  uint64   `json:"served"`
	Refused uint64   `json:"refused"`
	Longest float64  `json:"longest_seconds"`
	Within  []Within `json:"within"` // how many took at most so long
}

// Within is how many requests took at most some time.
type Within struct {
	Seconds float64 `json:"seconds"`
	Count   uint64  `json:"count"`
}
