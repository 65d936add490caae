package api

// Space is how much room a file system has, in bytes.
type Space struct {
	Available uint64 `json:"available"`
	Total     uint64 `json:"total"`
}
