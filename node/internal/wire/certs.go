package wire

import (
	"fmt"
	"time"

	"tidal/node/api"
)

// appendCertificates appends what a node says of its certificates, behind a
// report.
func appendCertificates(dst []byte, c *api.Certificates) []byte {
	dst = AppendBool(dst, c != nil)
	if c == nil {
		return dst
	}
	for _, s := range []string{c.Serial, c.Identity, c.Issuer, c.Problem} {
		dst = AppendString(dst, clipText(s))
	}
	for _, t := range []time.Time{c.NotBefore, c.NotAfter, c.Since} {
		dst = appendSecond(dst, t)
	}
	dst = AppendBool(dst, c.Due)
	dst = AppendUvarint(AppendUvarint(AppendUvarint(dst, c.Revoked), c.Taken), c.Failed)
	dst = AppendUvarint(dst, uint64(len(c.Roots)))
	for _, r := range c.Roots {
		dst = AppendString(AppendString(dst, r.Fingerprint), clipText(r.Subject))
		dst = appendSecond(dst, r.NotAfter)
	}
	dst = AppendUvarint(dst, uint64(len(c.Issuers)))
	for _, s := range c.Issuers {
		dst = AppendString(dst, clipText(s))
	}
	return dst
}

func readCertificates(r *Reader) *api.Certificates {
	if !r.Bool("certificates") {
		return nil
	}
	c := &api.Certificates{
		Serial: r.String("serial", maxText), Identity: r.String("identity", maxText),
		Issuer: r.String("issuer", maxText), Problem: r.String("problem", maxText),
	}
	c.NotBefore, c.NotAfter, c.Since = readSecond(r, "not before"), readSecond(r, "not after"), readSecond(r, "since")
	c.Due = r.Bool("due")
	c.Revoked, c.Taken, c.Failed = r.Uvarint("revoked"), r.Uvarint("taken"), r.Uvarint("failed")
	c.Roots = make([]api.Root, r.Count("roots", 3))
	for i := range c.Roots {
		c.Roots[i] = api.Root{Fingerprint: r.String("fingerprint", maxText), Subject: r.String("subject", maxText), NotAfter: readSecond(r, "not after")}
	}
	c.Issuers = make([]string, r.Count("issuers", 1))
	for i := range c.Issuers {
		c.Issuers[i] = r.String("issuer's serial", maxText)
	}
	return c
}

// appendSecond appends a time after 1970 in whole seconds: certificates know no
// others.
func appendSecond(dst []byte, t time.Time) []byte {
	return AppendUvarint(dst, uint64(max(t.Unix(), 0)))
}

func readSecond(r *Reader, what string) time.Time {
	return time.Unix(int64(r.Uvarint(what)), 0).UTC()
}

// clipText shortens what a reader would refuse for its length.
func clipText(s string) string { return s[:min(len(s), maxText)] }

// Revocation is a certificate that the cluster refuses.
type Revocation struct {
	Serial string // hex
	Reason string // for people
	By     string // who revoked it
}

// AppendRevocation appends the stored form of v.
func AppendRevocation(dst []byte, v *Revocation) []byte {
	return appendRevocation(append(dst, recordVersion), v)
}

func appendRevocation(dst []byte, v *Revocation) []byte {
	for _, s := range []string{v.Serial, v.Reason, v.By} {
		dst = AppendString(dst, s)
	}
	return dst
}

func readRevocation(r *Reader) Revocation {
	return Revocation{Serial: r.String("serial", api.MaxSerial), Reason: r.String("reason", maxText), By: r.String("by", maxText)}
}

// DecodeRevocation reads the form of AppendRevocation.
func DecodeRevocation(b []byte) (Revocation, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Revocation{}, fmt.Errorf("revocation: %w", err)
	}
	v := readRevocation(r)
	if err := r.Done(); err != nil {
		return Revocation{}, fmt.Errorf("revocation: %w", err)
	}
	return v, nil
}

// Rotation is how far one authority has taken another's place.
type Rotation struct {
	Old   string // fingerprint of the root that goes
	New   string // of the one that comes
	Phase string // of api.RotationPhases
	By    string // who began it, or took the last step
}

// AppendRotation appends the stored form of v.
func AppendRotation(dst []byte, v *Rotation) []byte {
	return appendRotation(append(dst, recordVersion), v)
}

func appendRotation(dst []byte, v *Rotation) []byte {
	for _, s := range []string{v.Old, v.New, v.Phase, v.By} {
		dst = AppendString(dst, s)
	}
	return dst
}

func readRotation(r *Reader) Rotation {
	return Rotation{Old: r.String("old root", maxText), New: r.String("new root", maxText), Phase: r.String("phase", maxText), By: r.String("by", maxText)}
}

// DecodeRotation reads the form of AppendRotation.
func DecodeRotation(b []byte) (Rotation, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Rotation{}, fmt.Errorf("rotation: %w", err)
	}
	v := readRotation(r)
	if err := r.Done(); err != nil {
		return Rotation{}, fmt.Errorf("rotation: %w", err)
	}
	return v, nil
}
