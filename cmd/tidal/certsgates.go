package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tidal/node/api"
)

// The gates of a rotation: each returns what stands in the way of the next phase,
// by what the members themselves show now.

// members asks every member, and says which cannot be asked.
func (r *rotation) members(ctx context.Context) (all []api.LocalStatus, open []string, err error) {
	s, err := r.cl.Status(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range s.Members {
		if m.Lease == nil || !m.Live {
			if !r.force {
				open = append(open, "node "+m.Node+" is down, and would come back with files that nobody trusts")
			}
			continue
		}
		local, err := r.cl.LocalStatus(ctx, m.Lease.Address)
		switch {
		case err != nil:
			open = append(open, fmt.Sprintf("node %s cannot be asked: %v", m.Node, err))
		case local.Certificates == nil:
			open = append(open, "node "+m.Node+" has no certificates: this is a plaintext cluster")
		default:
			all = append(all, local)
		}
	}
	return all, open, nil
}

// each has every member looked at.
func (r *rotation) each(ctx context.Context, why func(api.LocalStatus) string) ([]string, error) {
	all, open, err := r.members(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if w := why(m); w != "" {
			if p := m.Certificates.Problem; p != "" {
				w += " (its files cannot be used: " + p + ")"
			}
			open = append(open, "node "+m.Node+" "+w)
		}
	}
	return open, nil
}

func trusts(m api.LocalStatus, root string) bool {
	return slices.ContainsFunc(m.Certificates.Roots, func(r api.Root) bool { return r.Fingerprint == root })
}

// ready: may a rotation begin.
func (r *rotation) ready(ctx context.Context) ([]string, error) {
	return r.each(ctx, func(m api.LocalStatus) string {
		if m.Certificates.Problem != "" {
			return "does not use what its files hold"
		}
		return ""
	})
}

func (r *rotation) trustsBoth(ctx context.Context) ([]string, error) {
	return r.each(ctx, func(m api.LocalStatus) string {
		if !trusts(m, r.state.Old) || !trusts(m, r.state.New) {
			return "does not trust both roots yet: its bundle.crt must become that of " + r.dir
		}
		return ""
	})
}

func (r *rotation) usesNew(ctx context.Context) ([]string, error) {
	return r.each(ctx, func(m api.LocalStatus) string { return r.uses(m, r.files.NewIssuer) })
}

func (r *rotation) uses(m api.LocalStatus, issuer string) string {
	if m.Certificates.Issuer != issuer {
		folder, _ := nodeIn(m.Certificates.Identity)
		return "does not use its new certificate yet: its tls.crt must become that in " + r.dir + "/nodes/" + folder
	}
	return ""
}

// noOldConnection: nobody is connected who shows, or was shown, a certificate of
// the old authority, and it has been so for as long as is asked.
func (r *rotation) noOldConnection(ctx context.Context) ([]string, error) {
	open, err := r.connections(ctx, false)
	if err != nil {
		r.clean = time.Time{}
		return nil, err
	}
	return r.soaked(open), nil
}

// soaked returns what stands in the way of the end of the soak, given what else does.
func (r *rotation) soaked(open []string) []string {
	if len(open) > 0 {
		r.clean = time.Time{}
		return open
	}
	if r.clean.IsZero() {
		r.clean = time.Now()
	}
	if end := r.clean.Add(r.soak); time.Now().Before(end) {
		return []string{"the soak, until " + end.UTC().Format(time.RFC3339)}
	}
	return nil
}

func (r *rotation) connections(ctx context.Context, undo bool) ([]string, error) {
	old, err := r.files.OldSerials(r.dir, undo)
	if err != nil {
		return nil, err
	}
	return r.each(ctx, func(m api.LocalStatus) string {
		for _, conn := range m.Connections {
			switch {
			case old[conn.Own]:
				return fmt.Sprintf("has %d connections with %s that were made with its old certificate", conn.Count, orDash(conn.Identity))
			case old[conn.Peer]:
				return fmt.Sprintf("has %d connections with %s, which shows its old certificate: it needs its new one", conn.Count, conn.Identity)
			}
		}
		return ""
	})
}

func (r *rotation) trustsNewAlone(ctx context.Context) ([]string, error) {
	return r.each(ctx, func(m api.LocalStatus) string {
		if trusts(m, r.state.Old) || !trusts(m, r.state.New) {
			return "still trusts the old root: its bundle.crt must become that of " + r.dir
		}
		return ""
	})
}

func (r *rotation) usesOld(ctx context.Context) ([]string, error) {
	open, err := r.each(ctx, func(m api.LocalStatus) string { return r.uses(m, r.files.OldIssuer) })
	if err != nil || len(open) > 0 {
		return open, err
	}
	return r.connections(ctx, true)
}

func (r *rotation) trustsOldAlone(ctx context.Context) ([]string, error) {
	return r.each(ctx, func(m api.LocalStatus) string {
		if !trusts(m, r.state.Old) || trusts(m, r.state.New) {
			return "still trusts the new root: its bundle.crt must become that of " + r.dir
		}
		return ""
	})
}
