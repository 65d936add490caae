package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/pki"
)

const (
	defaultPort = "8433"
	verifyMost  = 10 * time.Second // for one server
)

func (a *app) certsVerifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "dial a server and say what each side makes of the other's certificate",
		UsageText: "tidal certs verify HOST[:PORT] [--ca FILE --cert FILE --key FILE | --cluster NAME] [--node ID]",
		Description: "It names the side that is at fault, and the way out. It ends with 0 if all is well, with 4 if nobody answers,\n" +
			"and with 5 otherwise. Show a node's certificate to see what nodes make of each other.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "cluster", Usage: "context whose certificates are shown and trusted", DefaultText: "TIDAL_CLUSTER, or the file's current one"},
			&cli.StringFlag{Name: "ca", Usage: "file of certificates to trust, instead of a context's"},
			&cli.StringFlag{Name: "cert", Usage: "file of the certificate to show, with --ca"},
			&cli.StringFlag{Name: "key", Usage: "file of its key, with --ca"},
			&cli.StringFlag{Name: "node", Usage: "the node that should answer, by `ID`"},
			outputFlag(),
		},
		Action: a.certsVerify,
	}
}

func (a *app) certsVerify(c *cli.Context) error {
	args, err := argsOf(c, "HOST[:PORT]")
	if err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	host, port, err := hostPort(args[0])
	if err != nil {
		return err
	}
	if err = checkVerify(c); err != nil {
		return err
	}
	files := pki.Files{CA: c.String("ca"), Cert: c.String("cert"), Key: c.String("key")}
	if files == (pki.Files{}) {
		t, targetErr := a.target(c)
		if targetErr != nil {
			return withHint(targetErr, "give --ca, --cert and --key, or a context with --cluster")
		}
		files = t.files()
	}
	pair, err := pki.LoadClient(files, time.Now())
	if err != nil {
		return withCode(exitAuth, fmt.Errorf("this side: %w", err))
	}
	exam, err := examine(c.Context, host, port, c.String("node"), pair)
	if err != nil {
		return err
	}
	if format == formatJSON {
		err = a.writeJSON(exam)
	} else {
		err = a.printExam(exam)
	}
	if err != nil {
		return err
	}
	if bad := exam.Failed(); bad != nil {
		return withHint(withCode(exitAuth, fmt.Errorf("%s: %s is at fault: %s", net.JoinHostPort(host, port), bad.Side, bad.Detail)), bad.Hint)
	}
	return nil
}

// checkVerify refuses flags that do not go together.
func checkVerify(c *cli.Context) error {
	own := c.IsSet("cert") || c.IsSet("key")
	switch {
	case c.IsSet("cluster") && (own || c.IsSet("ca")):
		return usagef("certs verify: --ca, --cert and --key stand for the certificates of a context, and --cluster names one")
	case own && !c.IsSet("ca"):
		return usagef("certs verify: --cert and --key go with --ca")
	}
	if node := c.String("node"); node != "" {
		return withCode(exitUsage, api.CheckNode(node))
	}
	return nil
}

// examine dials a server and has its certificate and its judgement of ours looked
// at.
func examine(ctx context.Context, host, port, node string, pair *pki.Keypair) (pki.Exam, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyMost)
	defer cancel()
	address := net.JoinHostPort(host, port)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return pki.Exam{}, withHint(fmt.Errorf("%w: %s: %w", client.ErrUnreachable, address, err), "is the node running, and is this its address?")
	}
	return pki.Examine(ctx, conn, host, node, pair, time.Now()), nil
}

// hostPort takes HOST, HOST:PORT, an address in any form, or a URL.
func hostPort(text string) (host, port string, err error) {
	if strings.Contains(text, "://") {
		u, urlErr := url.Parse(text)
		if urlErr != nil || u.Hostname() == "" {
			return "", "", usagef("%q is no address of a server", text)
		}
		text = u.Host
	}
	host, port, err = net.SplitHostPort(text)
	if err != nil { // no port
		host, port = strings.Trim(text, "[]"), defaultPort
	}
	_, notIP := netip.ParseAddr(host)
	n, err := strconv.ParseUint(port, 10, 16)
	if host == "" || strings.Contains(host, ":") && notIP != nil || err != nil || n == 0 {
		return "", "", withHint(usagef("%q is no address of a server", text), "write HOST or HOST:PORT")
	}
	return host, port, nil
}

func (a *app) printExam(x pki.Exam) error {
	var rows [][]string
	for _, check := range x.Checks {
		verdict := "ok"
		if !check.OK {
			verdict = "failed: " + check.Side
		}
		rows = append(rows, []string{check.Name, verdict, check.Detail})
	}
	return a.writeTable([]string{"CHECK", "VERDICT", "DETAIL"}, rows)
}
