package api

import (
	"fmt"
	"slices"
	"strings"
)

// Founding is the body of POST /v1/cluster/init: the listed members that a cluster is
// to form with, and without the others.
type Founding struct {
	Members []string `json:"members"`
}

// Founded is a cluster that forms.
type Founded struct {
	Cluster   string    `json:"cluster"`
	ClusterID ClusterID `json:"cluster_id"`
	Proposer  string    `json:"proposer"` // the node that proposed it
	Members   []string  `json:"members"`  // that it forms with
	Without   []string  `json:"without"`  // listed members that may come later
}

// Check returns a bad-request error unless it names nodes, each once.
func (f *Founding) Check() error {
	if len(f.Members) == 0 {
		return &Error{Code: CodeBadRequest, Message: "no members are named", Hint: "name those of the configured members that are there"}
	}
	for i, m := range f.Members {
		if CheckNode(m) != nil {
			return &Error{Code: CodeBadRequest, Message: fmt.Sprintf("%q is no node id", clip(m))}
		}
		if slices.Contains(f.Members[:i], m) {
			return &Error{Code: CodeBadRequest, Message: "node " + m + " is named twice in " + strings.Join(f.Members, ", ")}
		}
	}
	return nil
}
