package api

// MaxProgram is the largest binary that a node takes, in bytes.
const MaxProgram = 256 << 20

// Program is a binary of tidal on a node's machine.
type Program struct {
	Release

	SHA256 string `json:"sha256"` // of the file, in hex
	Path   string `json:"path"`
	// Problem is why it could not be asked what it is; "": it was.
	Problem string `json:"problem,omitempty"`
}

// Programs is what GET /v1/node/binary answers.
type Programs struct {
	Node        string      `json:"node"`
	Incarnation Incarnation `json:"incarnation"`
	Running     Program     `json:"running"`             // the node's process, whatever stands at its path now
	Installed   *Program    `json:"installed,omitempty"` // what a restart would run, and the supervisor starts
	Previous    *Program    `json:"previous,omitempty"`  // what stood there before the last one that a restart put there
	Staged      []Program   `json:"staged"`              // sent here, and not put there
}

// ProgramCheck is the body of POST /v1/node/binary.
type ProgramCheck struct {
	SHA256 string `json:"sha256"`
}

// CheckSHA256 returns a bad-request error unless text is a SHA-256 in lower case hex.
func CheckSHA256(text string) error {
	ok := len(text) == 64
	for _, c := range text {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f')
	}
	if ok {
		return nil
	}
	return &Error{Code: CodeBadRequest, Message: "the sha256 is \"" + clip(text) + "\": want 64 digits in lower case hex"}
}
