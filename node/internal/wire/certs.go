package wire

import (
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
	dst = AppendUvarint(AppendUvarint(dst, c.Taken), c.Failed)
	dst = AppendUvarint(dst, uint64(len(c.Roots)))
	for _, r := range c.Roots {
		dst = AppendString(AppendString(dst, r.Fingerprint), clipText(r.Subject))
		dst = appendSecond(dst, r.NotAfter)
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
	c.Taken, c.Failed = r.Uvarint("taken"), r.Uvarint("failed")
	c.Roots = make([]api.Root, r.Count("roots", 3))
	for i := range c.Roots {
		c.Roots[i] = api.Root{Fingerprint: r.String("fingerprint", maxText), Subject: r.String("subject", maxText), NotAfter: readSecond(r, "not after")}
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
