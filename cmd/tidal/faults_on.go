//go:build faults

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tidal/node"
	"tidal/node/api"
)

// raised is set by the linker: -ldflags "-X main.raised=1-2" makes a binary that speaks
// other feature levels than its release. What stands before a colon is a mark, for who
// makes other releases of a binary by changing its bytes.
var raised string //nolint:gochecknoglobals // as stamped

// levels returns the feature levels that this binary says it speaks.
func (a *app) levels() (api.Levels, error) {
	if raised == "" {
		return node.Levels(), nil
	}
	low, high, _ := strings.Cut(raised[strings.LastIndex(raised, ":")+1:], "-")
	least, err1 := strconv.ParseUint(low, 10, 64)
	most, err2 := strconv.ParseUint(high, 10, 64)
	return api.Levels{Min: least, Max: most}, errors.Join(err1, err2)
}

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
		case "compare-every":
			o.Limits.CompareEvery, err = time.ParseDuration(value)
		case "log-bytes":
			o.Limits.LogBytes, err = strconv.ParseInt(value, 10, 64)
		default:
			if !silent(f, name) {
				err = fmt.Errorf("unknown fault %q", word)
			}
		}
		if err != nil {
			return fmt.Errorf("TIDAL_FAULTS: %w", err)
		}
	}
	return nil
}

// silent switches on a fault that loses or makes up data, and reports whether it knows
// it.
func silent(f *node.Faults, name string) bool {
	switch name {
	case "unset-frontier":
		f.UnsetFrontier = true
	case "any-target":
		f.AnyTarget = true
	case "flip-values":
		f.FlipValues = true
	case "admit-older":
		f.AdmitOlder = true
	case "stale-reads":
		f.StaleReads = true
	case "ack-before-sync":
		f.AckBeforeSync = true
	default:
		return false
	}
	return true
}

// fault reads TIDAL_TOP_FAULT, the one of tidal top: update, command, goroutine, timer
// or fatal.
func (a *app) fault() string {
	what, _ := a.env("TIDAL_TOP_FAULT")
	return what
}
