package pki

import (
	"context"
	"errors"
	"time"
)

// ErrStopped is what GenStop returns when it stopped.
var ErrStopped = errors.New("stopped")

// GenStop is Gen, ended right after so many writes as by kill -9.
func GenStop(ctx context.Context, dir string, p Plan, now time.Time, after int) (Report, error) {
	return gen(ctx, directory{path: dir, wrote: func(string) error {
		if after--; after == 0 {
			return ErrStopped
		}
		return nil
	}}, p, now)
}

// DecodePEM reads PEM blocks from memory and what is in them, as a loader does.
func DecodePEM(data []byte) (certs int, key bool, err error) {
	blocks, err := decodePEM(data)
	if err != nil {
		return 0, false, err
	}
	if found, cerr := parseCerts("cert", blocks); cerr == nil {
		certs = len(found)
	}
	_, kerr := parseKey("key", blocks)
	return certs, kerr == nil, nil
}

// RenewStop is Renew, ended right after so many writes.
func RenewStop(ctx context.Context, dir string, w Renewal, now time.Time, after int) (Report, error) {
	return renew(ctx, directory{path: dir, wrote: func(string) error {
		if after--; after == 0 {
			return ErrStopped
		}
		return nil
	}}, w, now)
}

// RotateStop takes a step of a rotation, by its number, ended right after so many
// writes and renames.
func RotateStop(ctx context.Context, dir string, now time.Time, step, after int) error {
	d := directory{path: dir, wrote: func(string) error {
		if after--; after == 0 {
			return ErrStopped
		}
		return nil
	}}
	_, err := rotate(ctx, d, now, []func(*rotating) error{(*rotating).start, (*rotating).takeOver, (*rotating).end}[step])
	return err
}

// Copies returns how many certificates of clients are kept.
func (k *Keypair) Copies() (n int) {
	k.copies.certs.Range(func(any, any) bool { n++; return true })
	return n
}
