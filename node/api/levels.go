package api

import "fmt"

// Levels are the feature levels that a release speaks. A level stands for every
// format that is stored or sent; neighbouring releases share at least one.
type Levels struct {
	Min uint64 `json:"min"`
	Max uint64 `json:"max"`
}

// Speaks reports whether a level is among them.
func (l Levels) Speaks(level uint64) bool { return l.Min <= level && level <= l.Max }

// String says them for people: "level 1", or "levels 1 to 2".
func (l Levels) String() string {
	if l.Min == l.Max {
		return fmt.Sprintf("level %d", l.Min)
	}
	return fmt.Sprintf("levels %d to %d", l.Min, l.Max)
}

// ClusterLevel is what GET /v1/cluster/level answers.
type ClusterLevel struct {
	Level    uint64         `json:"level"`    // of what the cluster writes now
	Possible uint64         `json:"possible"` // the highest that every member speaks
	Members  []MemberLevels `json:"members"`  // in the order of their ids
}

// MemberLevels is what a member speaks, alive or not.
type MemberLevels struct {
	Node    string  `json:"node"`
	Levels  *Levels `json:"levels,omitempty"`  // as its last run said; absent of one that never had a lease
	Version string  `json:"version,omitempty"` // of a live one
}

// LevelChange is the body of PUT /v1/cluster/level.
type LevelChange struct {
	Level uint64 `json:"level"` // 0: the highest that every member speaks
}

// Release is what a binary says of itself: the answer of `tidal version -o json`.
type Release struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Levels  Levels `json:"levels"` // that it speaks
}
