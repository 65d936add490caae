package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxWindow is how many tables a window may have.
const MaxWindow = 1000

// TableState is how a table is, in one word.
type TableState string

// The states, from the best to the worst.
const (
	TableServing  TableState = "serving"   // owned, at its place, all replicas live
	TableMoving   TableState = "moving"    // owned, and on its way: to its place, or a replica to another node
	TableDegraded TableState = "degraded"  // owned, and a replica is not live
	TableUnsure   TableState = "unsure"    // its owner has a lease, and the answering node does not hear it
	TableNoOwner  TableState = "no-owner"  // a quorum lives, and nobody owns it
	TableNoQuorum TableState = "no-quorum" // too few replicas live for anybody to own it
)

// TableStates returns the states, from the best to the worst.
func TableStates() []TableState {
	return []TableState{TableServing, TableMoving, TableDegraded, TableUnsure, TableNoOwner, TableNoQuorum}
}

// Rank orders states; the worst is the highest.
func (s TableState) Rank() int {
	for i, x := range TableStates() {
		if x == s {
			return i
		}
	}
	return -1
}

// TableColumns are what a window can be sorted by; with a minus in front it is the
// other way round.
func TableColumns() []string {
	return []string{"name", "state", "owner", "place", "term", "frontier", "lag", "writes", "p99", "replicas", "id"}
}

// TableQuery says which tables of GET /cluster/status are wanted.
type TableQuery struct {
	Sort   string   // one of TableColumns; "" is name
	Filter string   // see ParseFilter
	Offset int      // of the first one
	Limit  int      // at most so many; 0: none at all, only the counts
	Follow *TableID // move the window as little as needed to have this table in it
}

// Window says which part of the tables a status shows, and counts all of them.
type Window struct {
	Offset  int                `json:"offset"`  // of the first table shown, among those that match
	Matched int                `json:"matched"` // tables that the filter lets through
	Total   int                `json:"total"`
	States  map[TableState]int `json:"states"` // all tables, by state
	Nodes   map[string]Load    `json:"nodes"`
	MaxLag  *int64             `json:"max_lag,omitempty"` // entries, of the replica furthest behind; absent while nobody knows
	// Unknown is how many replicas say nothing of how far they are.
	Unknown int      `json:"lags_unknown"`
	Writes  *float64 `json:"writes_per_second,omitempty"`
}

// Load is what a node has of the tables.
type Load struct {
	Owned int `json:"owned"`
	Held  int `json:"held"` // replicas
}

// SortKey splits what a window is sorted by into the column and the direction.
func (q *TableQuery) SortKey() (column string, down bool, err error) {
	return ParseSort(q.Sort, TableColumns())
}

// ParseSort reads a column, with a minus in front if it is the other way round. ""
// is the first one.
func ParseSort(text string, columns []string) (column string, down bool, err error) {
	column, down = strings.CutPrefix(text, "-")
	column = cmp.Or(column, columns[0])
	if slices.Contains(columns, column) {
		return column, down, nil
	}
	return "", false, &Error{
		Code:    CodeBadRequest,
		Message: fmt.Sprintf("cannot sort by %q: the columns are %s", clip(column), strings.Join(columns, ", ")),
		Hint:    "a minus in front turns the order round, as in -lag",
	}
}
