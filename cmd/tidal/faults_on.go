//go:build faults

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tidal/node"
)

// faults reads TIDAL_FAULTS, as in "listen-delay=1.5s,no-patience". The bound of
// the logs is among them, though it breaks nothing.
func (a *app) faults(o *node.Options) error {
	f := &o.Faults
	text, ok := a.env("TIDAL_FAULTS")
	if !ok || text == "" {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "listen-delay":
			f.ListenDelay, err = time.ParseDuration(value)
		case "handover-hold":
			f.HandOverHold, err = time.ParseDuration(value)
		case "suspect-after":
			f.SuspectAfter, err = time.ParseDuration(value)
		case "stall-after":
			f.StallAfter, err = time.ParseDuration(value)
		case "return-after":
			f.ReturnAfter, err = time.ParseDuration(value)
		case "lease-before-listen":
			f.LeaseBeforeListen = true
		case "no-patience":
			f.NoPatience = true
		case "advertise-member":
			f.AdvertiseMember = true
		case "no-address-proof":
			f.NoAddressProof = true
		case "no-request-ids":
			f.NoRequestIDs = true
		case "certs-cut":
			f.CertsCut = true
		case "never-quiet":
			f.NeverQuiet = true
		case "no-frontier":
			f.NoFrontier = true
		case "stale-reads":
			f.StaleReads = true
		case "ack-before-sync":
			f.AckBeforeSync = true
		case "log-bytes":
			o.Limits.LogBytes, err = strconv.ParseInt(value, 10, 64)
		default:
			err = fmt.Errorf("unknown fault %q", word)
		}
		if err != nil {
			return fmt.Errorf("TIDAL_FAULTS: %w", err)
		}
	}
	return nil
}

// fault reads TIDAL_TOP_FAULT, the one of tidal top: goroutine or update.
func (a *app) fault() string {
	what, _ := a.env("TIDAL_TOP_FAULT")
	return what
}
