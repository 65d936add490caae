package api

import (
	"cmp"
	"slices"
	"time"
)

// Certificates is what a node says of the certificates that it uses.
type Certificates struct {
	Serial    string    `json:"serial"`   // hex, as everywhere
	Identity  string    `json:"identity"` // the URI in it
	Issuer    string    `json:"issuer,omitempty"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"` // of the first in the chain that ends
	Due       bool      `json:"due"`       // less than a third of its life is left
	Roots     []Root    `json:"roots"`     // that it trusts
	Since     time.Time `json:"since"`     // when it took what it uses from its files
	Taken     uint64    `json:"taken"`     // sets of files that came into use, the first included
	Failed    uint64    `json:"failed"`    // looks at files that were no good
	// Problem is why the files as they are now cannot be used; what was taken before
	// stays in use. "": what is in use is what they hold.
	Problem string `json:"problem,omitempty"`
}

// Root is an authority that a node trusts.
type Root struct {
	Fingerprint string    `json:"fingerprint"` // SHA-256 of the certificate, hex
	Subject     string    `json:"subject"`
	NotAfter    time.Time `json:"not_after"`
}

// CertConns counts a node's open connections that have the same certificates at
// their two ends.
type CertConns struct {
	Own      string    `json:"own"`                // serial that this node showed; "" if it is not known
	Peer     string    `json:"peer,omitempty"`     // serial that the other side showed; "" for none
	Identity string    `json:"identity,omitempty"` // of the other side
	NotAfter time.Time `json:"not_after,omitzero"` // when the other side's ends
	Count    int       `json:"count"`
}

// SortCertConns orders them by the other side's identity, then by serials.
func SortCertConns(all []CertConns) {
	slices.SortFunc(all, func(a, b CertConns) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Own, b.Own))
	})
}
