package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/pki"
)

func (a *app) certsReloadCommand() *cli.Command {
	return &cli.Command{
		Name:      "reload",
		Usage:     "have nodes look at the files of their certificates now, and say what they use",
		UsageText: "tidal certs reload [NODE …] [--cluster NAME]",
		Description: "Without a NODE it asks all. Nodes look every few seconds anyhow, and on SIGHUP. One whose files cannot be used\n" +
			"keeps what it had; then this ends with 1 and says what is wrong.",
		Flags:  append(connectFlags(), outputFlag()),
		Action: a.certsReload,
	}
}

// reloaded is what a node answered.
type reloaded struct {
	Node string `json:"node"`
	*api.Certificates
	Error string `json:"error,omitempty"` // it did not answer
}

func (a *app) certsReload(c *cli.Context) error {
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	names := c.Args().Slice()
	for _, name := range names {
		if err = api.CheckNode(name); err != nil {
			return withCode(exitUsage, err)
		}
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	if len(names) == 0 {
		nodes, listErr := cl.Nodes(c.Context)
		if listErr != nil {
			return fmt.Errorf("list the nodes: %w", listErr)
		}
		for _, n := range nodes {
			names = append(names, n.Node)
		}
	}
	var all []reloaded
	var wrong []string
	for _, name := range names {
		one := reloaded{Node: name}
		report, askErr := cl.ReloadCerts(c.Context, name)
		switch {
		case askErr != nil:
			one.Error = askErr.Error()
			wrong = append(wrong, name+": "+one.Error)
		case report.Certificates == nil:
			one.Error = "it says nothing of certificates"
			wrong = append(wrong, name+": "+one.Error)
		case report.Certificates.Problem != "":
			wrong = append(wrong, name+": "+report.Certificates.Problem)
		}
		one.Certificates = report.Certificates
		all = append(all, one)
	}
	if err = a.printReloaded(all, format); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return withHint(withCode(exitFailed, errors.New(strings.Join(wrong, "\n"))), "the nodes go on with what they had; mend the files, they look again every few seconds")
	}
	return nil
}

func (a *app) printReloaded(all []reloaded, format string) error {
	if format == formatJSON {
		return a.writeJSON(struct {
			Nodes []reloaded `json:"nodes"`
		}{all})
	}
	var rows [][]string
	for _, r := range all {
		row := []string{r.Node, "-", "-", "-", "no answer"}
		if c := r.Certificates; c != nil {
			state := "in use since " + c.Since.Format(time.RFC3339)
			if c.Problem != "" {
				state = "not taken: the old ones stay in use"
			}
			row = []string{r.Node, short(c.Serial), c.NotAfter.Format(time.DateOnly), strconv.Itoa(len(c.Roots)), state}
		}
		rows = append(rows, row)
	}
	return a.writeTable([]string{"NODE", "SERIAL", "EXPIRES", "ROOTS", "FILES"}, rows)
}

// certWarnings says what an operator should know of the nodes' certificates.
func certWarnings(nodes []api.Node, now time.Time) []string {
	var out []string
	var roots, sharing []string
	differ := false
	for _, n := range nodes {
		c := n.Certificates
		if c == nil {
			continue
		}
		left := c.NotAfter.Sub(now)
		file, _ := nodeIn(c.Identity)
		if file == pki.Shared {
			sharing = append(sharing, n.Node)
		}
		switch {
		case left <= 0:
			out = append(out, fmt.Sprintf("node %s: its certificate expired at %s: tidal certs renew node/%s", n.Node, c.NotAfter.Format(time.RFC3339), file))
		case c.Due:
			out = append(out, fmt.Sprintf("node %s: its certificate is due, it ends in %s: tidal certs renew node/%s", n.Node, leftText(left), file))
		}
		if c.Problem != "" {
			out = append(out, fmt.Sprintf("node %s: it cannot use its certificate files as they are now, and goes on with what it had: %s", n.Node, c.Problem))
		}
		var trusts []string
		for _, r := range c.Roots {
			trusts = append(trusts, r.Fingerprint)
			if r.NotAfter.Before(now.Add(30 * 24 * time.Hour)) {
				out = append(out, fmt.Sprintf("node %s: the root %s that it trusts ends at %s", n.Node, r.Subject, r.NotAfter.Format(time.RFC3339)))
			}
		}
		slices.Sort(trusts)
		if roots != nil && !slices.Equal(roots, trusts) {
			differ = true
		}
		roots = trusts
	}
	if len(sharing) > 0 {
		out = append(out, fmt.Sprintf("certificates that speak for every node are in use (nodes %s): whoever has the key of one can be each node; tidal certs gen without --shared-leaf makes one for each",
			strings.Join(sharing, ", ")))
	}
	if differ {
		out = append(out, "the nodes do not trust the same roots: tidal certs reload shows how many each has")
	}
	return out
}
