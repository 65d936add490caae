package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
)

// maxReasons is how many reasons status prints.
const maxReasons = 10

func (a *app) statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "say how a cluster is: its nodes, and its tables with their owners",
		Description: "It ends with 10, and says why, if the cluster is degraded: if a node has no lease, or a table no owner,\n" +
			"or the metadata no leader. Certificates that need attention are told on stderr.",
		Flags:  append(connectFlags(), outputFlag()),
		Action: a.status,
	}
}

func (a *app) status(c *cli.Context) error {
	o, err := a.open(c)
	if err != nil {
		return err
	}
	defer o.cl.Close()
	s, err := o.cl.Status(c.Context)
	if err != nil {
		return fmt.Errorf("ask for the status: %w", err)
	}
	if o.format == formatJSON {
		err = a.writeJSON(s)
	} else {
		err = a.printStatus(s)
	}
	if err != nil {
		return err
	}
	// Who could not be asked is no reason not to show the rest.
	if nodes, err := o.cl.Nodes(c.Context); err == nil {
		for _, w := range certWarnings(nodes, time.Now()) {
			a.say("warning: %s", w)
		}
	}
	return withCode(exitDegraded, degraded(s))
}

func (a *app) printStatus(s api.Status) error {
	if _, err := fmt.Fprintf(a.stdout, "cluster %s (%s) as node %s sees it; metadata led by %s in term %d\n\n",
		s.Cluster, s.ClusterID, s.Node, orDash(s.MetaLeader), s.MetaTerm); err != nil {
		return err
	}
	owns := map[string]int{}
	for _, t := range s.Tables {
		owns[t.Owner]++
	}
	rows := make([][]string, 0, len(s.Members))
	for _, m := range s.Members {
		rows = append(rows, memberRow(m, owns[m.Node]))
	}
	if err := a.writeTable([]string{"NODE", "STATE", "TABLES", "META", "ADDRESS", "ZONE", "VERSION", "INCARNATION"}, rows); err != nil {
		return err
	}
	if _, err := io.WriteString(a.stdout, "\n"); err != nil {
		return err
	}
	if err := a.writeTable(tableHeadings(), tableRows(s.Tables)); err != nil {
		return err
	}
	return a.printRefusals(s.Refusals)
}

// printRefusals says who is refused, by whom, and what to do about it.
func (a *app) printRefusals(all []api.Refusal) error {
	for i, r := range all {
		head := "\nREFUSED\n"
		if i > 0 {
			head = ""
		}
		if _, err := fmt.Fprintf(a.stdout, "%s%s by %s, since %s: %s\n", head, r.Incarnation, r.By, r.Since.Format(time.RFC3339), r.Reason); err != nil {
			return err
		}
		if r.Hint == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.stdout, "  hint: %s\n", r.Hint); err != nil {
			return err
		}
	}
	return nil
}

func memberRow(m api.Member, owns int) []string {
	var l api.Lease
	state, incarnation := "no lease", ""
	if m.Lease != nil {
		l = *m.Lease
		incarnation = l.Incarnation.String()
	}
	switch {
	case m.Live && l.Draining:
		state = "draining"
	case m.Live:
		state = "live"
	}
	meta := "learner"
	if m.Voter {
		meta = "voter"
	}
	address := l.Address
	if address == "" {
		address = m.Address
	}
	return []string{
		m.Node, state, strconv.Itoa(owns), meta, orDash(address), orDash(l.Zone), orDash(l.Version), orDash(incarnation),
	}
}

// degraded says what is not well; nil: all is.
func degraded(s api.Status) error {
	var reasons []string
	if s.MetaLeader == "" {
		reasons = append(reasons, "the metadata has no leader")
	}
	for _, m := range s.Members {
		if !m.Live {
			reasons = append(reasons, "node "+m.Node+" has no lease")
		}
	}
	for _, t := range s.Tables {
		if t.Owner == "" {
			reasons = append(reasons, "table "+t.Name+" has no owner")
		}
	}
	if s.Waiting != "" {
		reasons = append(reasons, "node "+s.Node+" waits: "+s.Waiting)
	}
	for _, r := range s.Refusals {
		reasons = append(reasons, "node "+r.Node+" is refused by "+r.By)
	}
	if len(reasons) == 0 {
		return nil
	}
	if more := len(reasons) - maxReasons; more > 0 {
		reasons = append(reasons[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return errors.New("degraded: " + strings.Join(reasons, "; "))
}
