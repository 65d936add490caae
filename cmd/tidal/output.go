package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

// The forms of a command's data on stdout.
const (
	formatTable = "table"
	formatWide  = "wide" // of a few commands
	formatJSON  = "json"
)

// outputFlag is -o, which every command that prints data has.
func outputFlag() cli.Flag {
	return &cli.StringFlag{
		Name:    "output",
		Aliases: []string{"o"},
		Usage:   "form of the data on stdout: table or json",
		Value:   formatTable,
	}
}

// formatOf returns the form that -o asks for; another than the known ones is a
// usage error.
func formatOf(c *cli.Context) (string, error) {
	switch f := c.String("output"); f {
	case formatTable, formatJSON:
		return f, nil
	default:
		return "", withHint(usagef("%s: unknown form %q for --output", c.Command.HelpName, f), "it is table or json")
	}
}

// writeJSON writes v to stdout, indented.
func (a *app) writeJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// writeTable writes rows in columns to stdout under the headings.
func (a *app) writeTable(headings []string, rows [][]string) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{headings}, rows...) {
		if _, err := io.WriteString(w, strings.Join(r, "\t")+"\n"); err != nil {
			return err
		}
	}
	return w.Flush()
}

// say tells the user something on stderr. What stderr does not take can be told
// nowhere.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, format+"\n", args...)
}
