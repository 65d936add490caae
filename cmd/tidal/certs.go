package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsCommand() *cli.Command {
	return &cli.Command{
		Name:  "certs",
		Usage: "make, renew, check and explain the certificates of a cluster",
		Subcommands: []*cli.Command{
			a.certsGenCommand(),
			a.certsCACommand(),
			a.certsIssueCommand(),
			a.certsCSRCommand(),
			a.certsSignCommand(),
			a.certsRenewCommand(),
			a.certsCheckCommand(),
			a.certsLintCommand(),
			a.certsCoversCommand(),
			a.certsVerifyCommand(),
			a.certsBundleCommand(),
			a.certsExportCommand(),
			a.certsReloadCommand(),
			a.certsRevokeCommand(),
			a.certsRotateCommand(),
		},
	}
}

// dirFlag is --dir of the commands on a directory of certificates.
func dirFlag() cli.Flag {
	return &cli.StringFlag{Name: "dir", Usage: "`DIR` of the certificates, as tidal certs gen makes it"}
}

// dirOf returns --dir, which must be there.
func dirOf(c *cli.Context) (string, error) {
	dir := c.String("dir")
	if dir == "" {
		return "", withHint(usagef("%s: --dir is missing", c.Command.HelpName), "name the directory of certificates, as in --dir certs")
	}
	return dir, nil
}

// lifeFlag is --life of the commands that sign.
func lifeFlag() cli.Flag {
	return &cli.StringFlag{Name: "life", Usage: "how long the new certificates live, a `DURATION` as 90d or 12h", DefaultText: "397d"}
}

// mostDays are those of the longest time.Duration.
const mostDays = int(math.MaxInt64 / (24 * time.Hour))

// lifeOf reads --life; 0: it is not there.
func lifeOf(c *cli.Context) (time.Duration, error) {
	text := c.String("life")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); err == nil && n <= mostDays { // of more there would be few hours left
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d <= 0 {
		return 0, withHint(usagef("%s: --life is %q", c.Command.HelpName, text), "it is a duration, as 90d or 12h")
	}
	return d, nil
}

// printCerts tells what a command made of a directory.
func (a *app) printCerts(r pki.Report, format string) error {
	for _, n := range r.Notes {
		a.say("note: %s", n)
	}
	if format == formatJSON {
		return a.writeJSON(r)
	}
	var rows [][]string
	for _, f := range r.Files {
		expires := ""
		if !f.NotAfter.IsZero() {
			expires = f.NotAfter.Format(time.DateOnly)
		}
		rows = append(rows, []string{f.Kind, f.Name, f.State, expires, f.Path})
	}
	if err := a.writeTable([]string{"KIND", "NAME", "STATE", "EXPIRES", "FILE"}, rows); err != nil {
		return err
	}
	made := r.Made()
	if made == 0 {
		a.say("cluster %s: nothing to do, all %d files are there", r.Cluster, len(r.Files))
	} else {
		a.say("cluster %s: %s, %d kept", r.Cluster, madeText(r), len(r.Files)-made)
	}
	return nil
}

func madeText(r pki.Report) string {
	var parts []string
	for _, state := range []string{"made", "renewed"} {
		n := 0
		for _, f := range r.Files {
			if f.State == state {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}
