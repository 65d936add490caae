package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/client"
	"tidal/pki"
)

// shownSerial is how many digits of a serial number tables show.
const shownSerial = 8

func (a *app) certsCheckCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "say when certificates expire, in files and on servers that run",
		UsageText: "tidal certs check [DIR-OR-FILE …] [--cluster NAME | --endpoint URL …]",
		Description: "With --cluster or --endpoint it also asks every node of the cluster what it serves, and compares that with the\n" +
			"files. It ends with 10 if a certificate is due, which is when less than a third of its life is left, or if a\n" +
			"server has not taken a new file yet; and with 1 if one has expired or cannot be used.",
		Flags:  append(connectFlags(), outputFlag()),
		Action: a.certsCheck,
	}
}

// checked is an entry of the table: a file's, or what a server serves.
type checked struct {
	pki.Entry

	Served bool `json:"served,omitempty"` // by the server at Path
	Stale  bool `json:"stale,omitempty"`  // the file of this node holds another certificate
}

func (a *app) certsCheck(c *cli.Context) error {
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	live := c.IsSet("cluster") || c.IsSet("endpoint") || c.IsSet("ca") || c.IsSet("cert") || c.IsSet("key")
	if c.NArg() == 0 && !live {
		return withHint(usagef("certs check: nothing to look at"), "usage: "+c.Command.UsageText)
	}
	if err = noEmpty(c, "DIR-OR-FILE"); err != nil {
		return err
	}
	var all []checked
	for _, path := range c.Args().Slice() {
		entries, err := pki.Survey(path, time.Now())
		if err != nil {
			return err
		}
		for _, e := range entries {
			all = append(all, checked{Entry: e})
		}
	}
	if live {
		served, err := a.servedCerts(c, all)
		if err != nil {
			return err
		}
		all = append(all, served...)
	}
	if err := a.printChecked(all, format); err != nil {
		return err
	}
	return checkedVerdict(all)
}

// servedCerts asks each member what it serves.
func (a *app) servedCerts(c *cli.Context, files []checked) ([]checked, error) {
	t, err := a.target(c)
	if err != nil {
		return nil, err
	}
	cl, err := t.connect()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	pair, err := pki.LoadClient(t.files(), time.Now())
	if err != nil {
		return nil, err
	}
	addresses := t.Endpoints
	if members, err := memberAddresses(c.Context, cl); err == nil {
		addresses = members
	} else {
		a.say("note: the members cannot be listed, so only the endpoints are asked: %v", err)
	}
	var out []checked
	for _, address := range addresses {
		out = append(out, serverEntry(c.Context, address, pair, files))
	}
	return out, nil
}

func memberAddresses(ctx context.Context, cl *client.Client) ([]string, error) {
	s, err := cl.Status(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, m := range s.Members {
		if m.Lease != nil {
			all = append(all, m.Lease.Address)
		} else {
			all = append(all, m.Address)
		}
	}
	return all, nil
}

// serverEntry says what the server at an address serves.
func serverEntry(ctx context.Context, address string, pair *pki.Keypair, files []checked) checked {
	out := checked{Entry: pki.Entry{Kind: "served", Path: address}, Served: true}
	fail := func(problem, hint string) checked {
		out.State, out.Problem, out.Hint = pki.StateBroken, problem, hint
		return out
	}
	host, port, err := hostPort(address)
	if err != nil {
		return fail(err.Error(), "")
	}
	exam, err := examine(ctx, host, port, "", pair)
	if err != nil {
		return fail(err.Error(), hintOf(err))
	}
	out.Serial, out.Identity, out.NotBefore, out.NotAfter = exam.Serial, exam.Identity, exam.NotBefore, exam.NotAfter
	out.State = exam.State
	if id, ok := nodeIn(exam.Identity); ok {
		out.Name = id
	}
	if bad := exam.Failed(); bad != nil {
		if bad.Name != "clock" && out.State != pki.StateExpired {
			return fail(bad.Side+" is at fault: "+bad.Detail, bad.Hint)
		}
		out.Problem, out.Hint = bad.Detail, bad.Hint
	}
	for _, f := range files {
		if f.Kind == "node" && f.Name == out.Name && f.Serial != "" && f.Serial != out.Serial {
			out.Stale = true
			out.Problem = fmt.Sprintf("serves %s, and the file %s holds %s", short(out.Serial), f.Path, short(f.Serial))
			out.Hint = "bring the file to the node; it takes it within seconds, and tidal certs reload says if not"
		}
	}
	return out
}

// nodeIn returns what a directory of certificates calls the node that an identity
// names.
func nodeIn(identity string) (string, bool) {
	_, id, ok := strings.Cut(identity, "/node/")
	if id == pki.AnyNode {
		id = pki.Shared
	}
	return id, ok
}

func short(serial string) string { return serial[:min(shownSerial, len(serial))] }

func (a *app) printChecked(all []checked, format string) error {
	if format == formatJSON {
		return a.writeJSON(struct {
			Certificates []checked `json:"certificates"`
		}{all})
	}
	var rows [][]string
	for _, e := range all {
		expires, left := "-", "-"
		if !e.NotAfter.IsZero() {
			expires, left = e.NotAfter.Format(time.DateOnly), leftText(time.Until(e.NotAfter))
		}
		state := string(e.State)
		if e.Stale {
			state += ", old"
		}
		rows = append(rows, []string{e.Kind, orDash(e.Name), state, expires, left, orDash(short(e.Serial)), e.Path})
	}
	if err := a.writeTable([]string{"KIND", "NAME", "STATE", "EXPIRES", "LEFT", "SERIAL", "WHERE"}, rows); err != nil {
		return err
	}
	for _, e := range all {
		if e.Problem != "" {
			a.say("%s: %s", e.Path, strings.TrimPrefix(e.Problem, e.Path+": "))
			if e.Hint != "" {
				a.say("hint: %s", e.Hint)
			}
		}
	}
	return nil
}

// leftText writes how much time is left, in the largest unit that says something.
func leftText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "none"
	case d >= 2*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return d.Round(time.Second).String()
}

// checkedVerdict is the error that the table comes to; nil: all is well.
func checkedVerdict(all []checked) error {
	entries := make([]pki.Entry, 0, len(all))
	stale, counts := 0, map[pki.State]int{}
	for _, e := range all {
		entries = append(entries, e.Entry)
		counts[e.State]++
		if e.Stale {
			stale++
		}
	}
	var parts []string
	for _, s := range []pki.State{pki.StateBroken, pki.StateExpired, pki.StateEarly, pki.StateDue} {
		if n := counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if stale > 0 {
		parts = append(parts, fmt.Sprintf("%d served from an older file", stale))
	}
	if len(parts) == 0 {
		return nil
	}
	err := errors.New("certificates: " + strings.Join(parts, ", "))
	switch pki.Worst(entries) {
	case pki.StateOK, pki.StateDue:
		return withHint(withCode(exitDegraded, err), "tidal certs renew --dir DIR renews what is due")
	case pki.StateEarly, pki.StateExpired, pki.StateBroken:
	}
	return withCode(exitFailed, err)
}
