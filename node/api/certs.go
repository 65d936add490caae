package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A certificate's serial number is written in hex, with zeros before it where it
// has fewer than MinSerial digits. Certificates allow 20 bytes.
const (
	MinSerial = 32
	MaxSerial = 40
)

// MaxRevoked is how many certificates a cluster can have revoked.
const MaxRevoked = 10_000

// Certificates is what a node says of the certificates that it uses.
type Certificates struct {
	Serial    string    `json:"serial"`            // hex, as everywhere
	Identity  string    `json:"identity"`          // the URI in it
	Issuer    string    `json:"issuer,omitempty"`  // fingerprint of what signed it
	Issuers   []string  `json:"issuers,omitempty"` // serials of all issuers, up to the root
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"` // of the first in the chain that ends
	Due       bool      `json:"due"`       // less than a third of its life is left
	Roots     []Root    `json:"roots"`     // that it trusts
	Since     time.Time `json:"since"`     // when it took what it uses from its files
	Revoked   uint64    `json:"revoked"`   // certificates that it refuses because they were revoked
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

// Revocation is a certificate that the cluster refuses: the body of
// POST /v1/certs/revoked.
type Revocation struct {
	Serial string `json:"serial"`           // hex, as everywhere
	Reason string `json:"reason,omitempty"` // for people, at most 200 bytes
	By     string `json:"by,omitempty"`     // who revoked it; "" is the client's name
}

// RevocationList is what GET /v1/certs/revoked answers.
type RevocationList struct {
	Revoked []Revocation `json:"revoked"` // in the order of their serials
}

// Check returns a bad-request error unless it can be stored.
func (r *Revocation) Check() error {
	switch {
	case len(r.Serial) < MinSerial || len(r.Serial) > MaxSerial || strings.Trim(r.Serial, "0123456789abcdef") != "":
		return &Error{
			Code: CodeBadRequest, Message: fmt.Sprintf("serial %q is not %d to %d digits of lower-case hex", clip(r.Serial), MinSerial, MaxSerial),
			Hint: "tidal certs check shows serials; tidal certs revoke takes the certificate's file",
		}
	case len(r.Reason) > 200 || len(r.By) > 200:
		return &Error{Code: CodeBadRequest, Message: "the reason and the name have at most 200 bytes"}
	}
	return nil
}

// The phases of a rotation, in which one authority takes another's place.
const (
	RotateTrust  = "trust"  // every node comes to trust both roots
	RotateIssue  = "issue"  // every node comes to use a certificate under the new one
	RotateSoak   = "soak"   // connections made under the old one end
	RotateDrop   = "drop"   // every node comes to trust the new one alone
	RotateDone   = "done"   // it is over
	RotateUndo   = "undo"   // back to the old one
	RotateUndone = "undone" // it is over, and all is as before
)

// Rotation is how far one authority has taken another's place: the body of
// PUT /v1/certs/rotation.
type Rotation struct {
	Old   string `json:"old"`          // fingerprint of the root that goes
	New   string `json:"new"`          // of the one that comes
	Phase string `json:"phase"`        // "": there never was one
	By    string `json:"by,omitempty"` // who took the last step; "" is the client's name
}

// Active reports whether it is under way.
func (r *Rotation) Active() bool {
	return r.Phase != "" && r.Phase != RotateDone && r.Phase != RotateUndone
}

// Follows reports whether a phase may follow another of the same rotation.
func Follows(phase, next string) bool {
	switch next {
	case RotateIssue:
		return phase == RotateTrust
	case RotateSoak:
		return phase == RotateIssue
	case RotateDrop:
		return phase == RotateSoak
	case RotateDone:
		return phase == RotateDrop
	case RotateUndo:
		return phase == RotateTrust || phase == RotateIssue || phase == RotateSoak
	case RotateUndone:
		return phase == RotateUndo
	}
	return false
}

// Check returns a bad-request error unless it can be asked for.
func (r *Rotation) Check() error {
	for _, f := range []string{r.Old, r.New} {
		if len(f) != 64 || strings.Trim(f, "0123456789abcdef") != "" {
			return &Error{Code: CodeBadRequest, Message: fmt.Sprintf("%q is not the SHA-256 fingerprint of a root, in 64 digits of lower-case hex", clip(f))}
		}
	}
	switch {
	case r.Old == r.New:
		return &Error{Code: CodeBadRequest, Message: "the old and the new root are the same"}
	case r.Phase != RotateTrust && !Follows(RotateTrust, r.Phase) && !Follows(RotateIssue, r.Phase) && !Follows(RotateSoak, r.Phase) &&
		!Follows(RotateDrop, r.Phase) && !Follows(RotateUndo, r.Phase):
		return &Error{Code: CodeBadRequest, Message: fmt.Sprintf("%q is no phase of a rotation", clip(r.Phase)), Hint: "it is trust, issue, soak, drop, done, undo or undone"}
	case len(r.By) > 200:
		return &Error{Code: CodeBadRequest, Message: "the name has at most 200 bytes"}
	}
	return nil
}
