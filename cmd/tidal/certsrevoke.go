package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/pki"
)

// revokeMost is how long a node may take to learn what was revoked.
const revokeMost = 10 * time.Second

func (a *app) certsRevokeCommand() *cli.Command {
	return &cli.Command{
		Name:      "revoke",
		Usage:     "have the cluster refuse a certificate, on new connections and on open ones",
		UsageText: "tidal certs revoke FILE-OR-SERIAL [--reason TEXT] [--cluster NAME]\ntidal certs revoke --list [--cluster NAME]",
		Description: "It is refused for ever, whatever it is valid for. The command waits until every live node refuses it. One that a\n" +
			"live node uses is not revoked without --force: that node would lose its peers. Renew it first. A FILE with a certificate\n" +
			"of another cluster, or of an authority that this one does not trust, is not either: nodes refuse it as it is. An\n" +
			"authority under which a live node's certificate was signed is never revoked: tidal certs rotate puts another in its place.",
		Flags: append(connectFlags(),
			&cli.StringFlag{Name: "reason", Usage: "why, a `TEXT` for people"},
			&cli.BoolFlag{Name: "list", Usage: "list what is revoked, and revoke nothing"},
			&cli.BoolFlag{Name: "force", Usage: "also if a live node or this client uses it, or it is of another cluster"},
			outputFlag()),
		Action: a.certsRevoke,
	}
}

func (a *app) certsRevoke(c *cli.Context) error {
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	if c.Bool("list") {
		if _, err = argsOf(c); err != nil {
			return err
		}
		if c.IsSet("reason") || c.IsSet("force") {
			return usagef("certs revoke: --reason and --force revoke, and --list does not")
		}
		return a.listRevoked(c, format)
	}
	args, err := argsOf(c, "FILE-OR-SERIAL")
	if err != nil {
		return err
	}
	serial, file, err := serialOf(args[0])
	if err != nil {
		return err
	}
	t, err := a.target(c)
	if err != nil {
		return err
	}
	cl, err := t.connect()
	if err != nil {
		return err
	}
	defer cl.Close()
	a.say("cluster %s", t)
	if file && !c.Bool("force") {
		if err = notForeign(t, args[0]); err != nil {
			return err
		}
	}
	if err = mayRevoke(c, cl, t, serial); err != nil {
		return err
	}
	if err = cl.Revoke(c.Context, api.Revocation{Serial: serial, Reason: c.String("reason")}); err != nil {
		return fmt.Errorf("revoke %s: %w", serial, err)
	}
	if err = awaitRefused(c.Context, cl, serial); err != nil {
		return err
	}
	if format == formatJSON {
		return a.writeJSON(api.Revocation{Serial: serial, Reason: c.String("reason")})
	}
	_, err = fmt.Fprintf(a.stdout, "%s is refused by every live node\n", serial)
	return err
}

// droppedZeros is how many zeros at the beginning of a serial number other programs may
// have left out. A shorter one is the beginning of a number, as a table shows it.
const droppedZeros = 8

// serialOf takes a serial number in hex, or the file of a certificate, and says which it is.
func serialOf(arg string) (serial string, file bool, _ error) {
	serial = strings.ToLower(strings.ReplaceAll(arg, ":", "")) // as other programs write it
	r := api.Revocation{Serial: strings.Repeat("0", max(0, api.MinSerial-len(serial))) + serial}
	if _, err := os.Stat(arg); errors.Is(err, fs.ErrNotExist) && r.Check() == nil {
		if len(serial) < api.MinSerial-droppedZeros {
			return "", false, withHint(usagef("certs revoke: %q has %d digits: it is no whole serial number, and would revoke nothing", arg, len(serial)),
				"`tidal certs check -o json` and serials.jsonl have whole ones; one that is so short takes zeros before it, to 32 digits; the certificate's file does too")
		}
		return r.Serial, false, nil
	}
	cert, err := pki.ReadCert(arg)
	if err != nil {
		return "", false, err
	}
	return pki.Serial(cert), true, nil
}

// notForeign refuses a file with a certificate that the cluster does not let in anyhow:
// who names it means another file, or another cluster.
func notForeign(t target, path string) error {
	if t.CA == "" {
		return nil // a cluster without TLS asks nobody for a certificate
	}
	own, err := pki.LoadClient(t.files(), time.Now())
	if err != nil {
		return err
	}
	why, err := own.Foreign(path)
	if err != nil || why == "" {
		return err
	}
	return withHint(withCode(exitRefused, fmt.Errorf("%s: %s: its nodes refuse it as it is", path, why)),
		"--cluster names another cluster; --force revokes it here all the same")
}

// inUse refuses to revoke a certificate, for a reason that --force overrides.
func inUse(format string, args ...any) error {
	return withHint(withCode(exitRefused, fmt.Errorf(format, args...)), "renew it first: tidal certs renew; --force revokes it all the same")
}

// mayRevoke is an error if what is to be revoked is in use where it should not be
// cut off.
func mayRevoke(c *cli.Context, cl *client.Client, t target, serial string) error {
	force := c.Bool("force")
	if t.Cert != "" {
		own, err := pki.LoadClient(t.files(), time.Now())
		switch {
		case err != nil:
			return err
		case slices.ContainsFunc(own.Issuers(), func(i *x509.Certificate) bool { return pki.Serial(i) == serial }):
			return signs("the certificate that this command shows")
		case pki.Serial(own.Leaf()) == serial && !force:
			return inUse("this is the certificate that this command shows: the cluster would refuse you")
		}
	}
	nodes, err := cl.Nodes(c.Context)
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	for _, n := range nodes {
		switch {
		case n.Certificates == nil:
		case slices.Contains(n.Certificates.Issuers, serial):
			return signs("the certificate of node " + n.Node)
		case n.Certificates.Serial == serial && !force:
			return inUse("node %s lives and uses this certificate: it would lose its peers", n.Node)
		}
	}
	return nil
}

// signs refuses to revoke an authority in use, whatever is said: the nodes would
// refuse each other, and nobody could take it back.
func signs(what string) error {
	return withHint(withCode(exitRefused, errors.New("this is an authority under which "+what+" was signed: all that it signed would be refused for ever")),
		"tidal certs rotate puts another authority in its place while the cluster serves; --force does not help here")
}

// awaitRefused waits until every live node refuses a certificate.
func awaitRefused(ctx context.Context, cl *client.Client, serial string) error {
	behind := []string{"the node that was asked"}
	for end := time.Now().Add(revokeMost); ; {
		list, err := cl.Revoked(ctx)
		if err != nil {
			return fmt.Errorf("list what is revoked: %w", err)
		}
		// The node that is asked may not have heard itself what was decided.
		if slices.ContainsFunc(list, func(r api.Revocation) bool { return r.Serial == serial }) {
			if behind, err = refusingLess(ctx, cl, len(list)); err != nil {
				return err
			}
		}
		if len(behind) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return withHint(withCode(exitNotReady, fmt.Errorf("it is decided, and not known to be refused yet by %s", strings.Join(behind, ", "))),
				"it will be as soon as they hear of it; run this again to see")
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// refusingLess returns the live nodes that refuse fewer certificates than so many.
func refusingLess(ctx context.Context, cl *client.Client, than int) ([]string, error) {
	nodes, err := cl.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the nodes: %w", err)
	}
	var behind []string
	for _, n := range nodes {
		if n.Live && (n.Certificates == nil || n.Certificates.Revoked < uint64(than)) {
			behind = append(behind, "node "+n.Node)
		}
	}
	return behind, nil
}

func (a *app) listRevoked(c *cli.Context, format string) error {
	cl, err := a.connect(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	list, err := cl.Revoked(c.Context)
	if err != nil {
		return fmt.Errorf("list what is revoked: %w", err)
	}
	if format == formatJSON {
		return a.writeJSON(api.RevocationList{Revoked: append([]api.Revocation{}, list...)})
	}
	rows := make([][]string, 0, len(list))
	for _, r := range list {
		rows = append(rows, []string{r.Serial, orDash(r.By), orDash(r.Reason)})
	}
	return a.writeTable([]string{"SERIAL", "BY", "REASON"}, rows)
}
