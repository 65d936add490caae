package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
)

// formatLines is a form of `rows list`: what `rows load` takes.
const formatLines = "ndjson"

func (a *app) rowsListCommand() *cli.Command {
	return &cli.Command{
		Name:      "list",
		Usage:     "print rows in the order of their keys",
		UsageText: "tidal rows list TABLE [--prefix P] [--limit N] [-o wide|json|ndjson]",
		Description: "Rows are read in pages, each of which is the table at one moment. With -o ndjson a row is a line as " +
			"`tidal rows load` takes it. A table shows the beginning of long values; wide shows all. A key or value that is not text is in quotes, in JSON a value in base64.",
		Flags: append(connectFlags(), consistencyFlag(), &cli.StringFlag{
			Name: "output", Aliases: []string{"o"}, Value: formatTable,
			Usage: "form of the data on stdout: table, wide, json or ndjson",
		},
			&cli.StringFlag{Name: "prefix", Usage: "only keys that begin with `P`"},
			&cli.StringFlag{Name: "from", Usage: "only keys from `KEY` on"},
			&cli.StringFlag{Name: "to", Usage: "only keys before `KEY`"},
			&cli.StringFlag{Name: "after", Usage: "only keys after `KEY`"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N` rows; 0 for all"},
		),
		Action: a.rowsList,
	}
}

func (a *app) rowsList(c *cli.Context) error {
	args, err := argsOf(c, "TABLE")
	if err != nil {
		return err
	}
	if err = api.CheckTable(args[0]); err != nil {
		return withCode(exitUsage, err)
	}
	format := c.String("output")
	if format != formatWide && format != formatLines {
		if format, err = formatOf(c); err != nil {
			return withHint(err, "it is table, wide, json or ndjson")
		}
	}
	read, err := readOptions(c)
	if err != nil {
		return err
	}
	o := client.ScanOptions{
		Prefix: c.String("prefix"), From: c.String("from"), To: c.String("to"), After: c.String("after"),
		Limit: c.Int("limit"), Local: read.Local,
	}
	if o.Limit < 0 {
		return usagef("--limit: %d is less than 0", o.Limit)
	}
	cl, err := a.connect(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	l := rowLister{a: a, table: args[0], format: format}
	for row, err := range cl.Rows(c.Context, args[0], o) {
		if err == nil {
			err = l.add(&row)
		}
		if err != nil {
			return fmt.Errorf("list the rows of table %s: %w", args[0], err)
		}
	}
	return l.flush(true)
}

// rowLister prints rows as they come. A table is aligned some rows at a time, so
// that a large one is not held in memory.
type rowLister struct {
	a      *app
	table  string
	format string
	rows   []rowOut
	cells  [][]string
	began  bool
}

// alignedRows is how many rows of a table are aligned together.
const alignedRows = 1000

func (l *rowLister) add(row *api.Row) error {
	switch l.format {
	case formatLines:
		_, err := l.a.stdout.Write(api.AppendChange(nil, &api.Change{Key: row.Key, Value: row.Value}))
		return err
	case formatJSON:
		size := int64(len(row.Value))
		out := rowOut{Table: l.table, Key: row.Key, ETag: api.ETag(row.Version), Size: &size}
		out.setValue(row.Value)
		l.rows = append(l.rows, out)
		return nil
	}
	cells := []string{printable(row.Key), clipped(printable(string(row.Value)))}
	if l.format == formatWide {
		cells = []string{printable(row.Key), api.ETag(row.Version), strconv.Itoa(len(row.Value)), printable(string(row.Value))}
	}
	l.cells = append(l.cells, cells)
	return l.flush(false)
}

// flush prints what has come, if it is enough to be aligned or all.
func (l *rowLister) flush(all bool) error {
	switch {
	case l.format == formatLines:
		return nil
	case l.format == formatJSON:
		return l.a.writeJSON(map[string]any{"rows": append([]rowOut{}, l.rows...)})
	case !all && len(l.cells) < alignedRows, l.began && len(l.cells) == 0:
		return nil
	}
	headings := []string{"KEY", "VALUE"}
	if l.format == formatWide {
		headings = []string{"KEY", "ETAG", "SIZE", "VALUE"}
	}
	if l.began {
		headings, l.cells = l.cells[0], l.cells[1:]
	}
	err := l.a.writeTable(headings, l.cells)
	l.cells, l.began = nil, true
	return err
}

// clipped shortens what a table shows of a value; the other forms show all of it.
func clipped(text string) string {
	const most = 100
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "…"
}

// printable returns text as it is if it can be shown on a line, else in quotes.
func printable(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) {
		return strconv.Quote(text)
	}
	return text
}
