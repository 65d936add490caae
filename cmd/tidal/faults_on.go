//go:build faults

package main

import (
	"fmt"
	"strings"
	"time"

	"tidal/node"
)

// faults reads TIDAL_FAULTS, as in "listen-delay=1.5s,no-patience".
func (a *app) faults() (node.Faults, error) {
	var f node.Faults
	text, ok := a.env("TIDAL_FAULTS")
	if !ok || text == "" {
		return f, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "listen-delay":
			f.ListenDelay, err = time.ParseDuration(value)
		case "handover-hold":
			f.HandOverHold, err = time.ParseDuration(value)
		case "lease-before-listen":
			f.LeaseBeforeListen = true
		case "no-patience":
			f.NoPatience = true
		case "advertise-member":
			f.AdvertiseMember = true
		case "no-address-proof":
			f.NoAddressProof = true
		case "never-quiet":
			f.NeverQuiet = true
		default:
			err = fmt.Errorf("unknown fault %q", word)
		}
		if err != nil {
			return f, fmt.Errorf("TIDAL_FAULTS: %w", err)
		}
	}
	return f, nil
}
