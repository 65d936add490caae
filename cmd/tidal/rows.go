package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
)

func consistencyFlag() cli.Flag {
	return &cli.StringFlag{
		Name:  "consistency",
		Usage: "linearizable, or local: what the answering node's replica has",
		Value: "linearizable",
	}
}

// readOptions reads consistencyFlag.
func readOptions(c *cli.Context) (o client.ReadOptions, err error) {
	switch how := c.String("consistency"); how {
	case "local":
		o.Local = true
	case "linearizable":
	default:
		return o, withHint(usagef("unknown --consistency %q", how), "it is linearizable or local")
	}
	return o, nil
}

func (a *app) rowsCommand() *cli.Command {
	return &cli.Command{
		Name:  "rows",
		Usage: "read and write rows",
		Subcommands: []*cli.Command{
			{
				Name:        "put",
				Usage:       "write a row",
				UsageText:   "tidal rows put TABLE KEY VALUE|-",
				Description: "The value - is what comes from stdin, byte for byte. The row's version is printed.\n\n" + conditionsText,
				Flags:       append(append(connectFlags(), outputFlag()), conditionFlags()...),
				Action:      a.rowsPut,
			},
			{
				Name:      "get",
				Usage:     "print a row's value, byte for byte",
				UsageText: "tidal rows get TABLE KEY [-o wide|json] [--consistency local]",
				Description: "With -o wide or json also the row's version, for --if-match. A value that is not text is in quotes there, " +
					"or in base64.",
				Flags: append(connectFlags(), consistencyFlag(), &cli.StringFlag{
					Name: "output", Aliases: []string{"o"}, Value: formatTable,
					Usage: "form of the data on stdout: table (the value alone), wide or json",
				}),
				Action: a.rowsGet,
			},
			{
				Name:      "head",
				Usage:     "print a row's version and size",
				UsageText: "tidal rows head TABLE KEY [--consistency local]",
				Flags:     append(connectFlags(), consistencyFlag(), outputFlag()),
				Action:    a.rowsHead,
			},
			{
				Name:        "delete",
				Usage:       "delete a row; one that is not there is fine",
				UsageText:   "tidal rows delete TABLE KEY",
				Description: conditionsText,
				Flags:       append(connectFlags(), conditionFlags()...),
				Action:      a.rowsDelete,
			},
			a.rowsListCommand(),
			a.rowsLoadCommand(),
		},
	}
}

const conditionsText = "With --if-match it is done only if the row still has that version (or one of several), or, with *, if there " +
	"is such a row; with --if-none-match '*' only if there is none. Otherwise nothing is done, and the exit code is 7. " +
	"With --idempotency-key it can be run again: it is done once."

// conditionFlags are the flags of commands that write a row.
func conditionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "if-match", Usage: "version that the row must have, as printed by put, head and get -o wide; * for any; repeatable"},
		&cli.StringFlag{Name: "if-none-match", Usage: "*: there must be no such row"},
		&cli.StringFlag{Name: "idempotency-key", Usage: "name of this write, to run it again safely within 15 minutes"},
	}
}

// writeOptions reads conditionFlags.
func writeOptions(c *cli.Context) (o client.WriteOptions, err error) {
	for _, tag := range c.StringSlice("if-match") {
		if tag == "*" {
			o.IfExists = true
			continue
		}
		v, ok := api.ParsePosition(strings.Trim(tag, `"`))
		if !ok {
			return o, withHint(usagef("--if-match: %q is no version of a row", tag), "tidal rows get TABLE KEY -o wide shows it, as 2-12")
		}
		o.IfMatch = append(o.IfMatch, v)
	}
	switch none := c.String("if-none-match"); none {
	case "":
	case "*":
		o.IfAbsent = true
	default:
		return o, withHint(usagef("--if-none-match: %q is not *", none), "a write can only ask that there is no such row")
	}
	if o.IfAbsent && c.IsSet("if-match") {
		return o, usagef("--if-match and --if-none-match: a row cannot be there and not be there")
	}
	if o.Key = c.String("idempotency-key"); len(o.Key) > api.MaxIdem {
		return o, usagef("--idempotency-key has 1 to %d bytes", api.MaxIdem)
	}
	return o, nil
}

// rowOut is what put, get and head print.
type rowOut struct {
	Table string  `json:"table"`
	Key   string  `json:"key"`
	ETag  string  `json:"etag"`
	Size  *int64  `json:"size,omitempty"`
	Node  string  `json:"node,omitempty"`
	Owner string  `json:"owner,omitempty"`
	Lag   *uint64 `json:"lag,omitempty"`

	Value  *string `json:"value,omitempty"`        // if it is text
	Base64 []byte  `json:"value_base64,omitempty"` // if it is not
}

// setValue puts a value in, as text if it is that.
func (r *rowOut) setValue(value []byte) {
	if text := string(value); utf8.ValidString(text) {
		r.Value = &text
	} else {
		r.Base64 = value
	}
}

// newRowOut describes a row that was read.
func newRowOut(table, key string, row *client.Row) rowOut {
	out := rowOut{Table: table, Key: key, ETag: api.ETag(row.Version), Node: row.Node, Owner: row.Owner}
	if row.Size >= 0 {
		out.Size = &row.Size
	}
	if row.Owner == "" { // a local read
		out.Lag = &row.Lag
	}
	return out
}

// rowTable writes rows with what is known of them, and more columns, as a table.
func (a *app) rowTable(out *rowOut, more ...string) error {
	size, lag := "-", "-"
	if out.Size != nil {
		size = strconv.FormatInt(*out.Size, 10)
	}
	if out.Lag != nil {
		lag = strconv.FormatUint(*out.Lag, 10)
	}
	headings := []string{"ETAG", "SIZE", "NODE", "OWNER", "LAG"}
	cells := []string{out.ETag, size, orDash(out.Node), orDash(out.Owner), lag}
	if len(more) > 0 {
		headings = append(headings, "VALUE")
	}
	return a.writeTable(headings, [][]string{append(cells, more...)})
}

func (a *app) rowsPut(c *cli.Context) error {
	args, err := rowArgs(c, "VALUE|-")
	if err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	value := []byte(args[2])
	if args[2] == "-" {
		if value, err = io.ReadAll(io.LimitReader(a.stdin, api.MaxValue+1)); err != nil {
			return fmt.Errorf("read the value from stdin: %w", err)
		}
	}
	if len(value) > api.MaxValue {
		return withHint(fmt.Errorf("the row's value is too large: the limit is %d bytes", api.MaxValue), "put it into several rows")
	}
	o, err := writeOptions(c)
	if err != nil {
		return err
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	v, err := cl.Put(c.Context, args[0], args[1], value, o)
	if err != nil {
		return fmt.Errorf("put %s/%s: %w", args[0], args[1], err)
	}
	if format == formatJSON {
		return a.writeJSON(rowOut{Table: args[0], Key: args[1], ETag: api.ETag(v)})
	}
	_, err = io.WriteString(a.stdout, api.ETag(v)+"\n")
	return err
}

func (a *app) rowsGet(c *cli.Context) error {
	format := c.String("output")
	if format != formatWide {
		var err error
		if format, err = formatOf(c); err != nil {
			return withHint(err, "it is table, wide or json")
		}
	}
	args, row, err := a.readRow(c, (*client.Client).Get)
	if err != nil {
		return err
	}
	if row.Lag > 0 {
		a.say("node %s lacks %d entries of table %s", row.Node, row.Lag, args[0])
	}
	out := newRowOut(args[0], args[1], &row)
	switch format {
	case formatTable:
		_, err = a.stdout.Write(row.Value)
		return err
	case formatWide:
		return a.rowTable(&out, printable(string(row.Value)))
	}
	out.setValue(row.Value)
	return a.writeJSON(out)
}

func (a *app) rowsHead(c *cli.Context) error {
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	args, row, err := a.readRow(c, (*client.Client).Head)
	if err != nil {
		return err
	}
	out := newRowOut(args[0], args[1], &row)
	if format == formatJSON {
		return a.writeJSON(out)
	}
	return a.rowTable(&out)
}

func (a *app) rowsDelete(c *cli.Context) error {
	args, err := rowArgs(c)
	if err != nil {
		return err
	}
	o, err := writeOptions(c)
	if err != nil {
		return err
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.Delete(c.Context, args[0], args[1], o); err != nil {
		return fmt.Errorf("delete %s/%s: %w", args[0], args[1], err)
	}
	return nil
}

// readRow does what get and head have in common; read is the call of the client.
func (a *app) readRow(
	c *cli.Context,
	read func(cl *client.Client, ctx context.Context, table, key string, o client.ReadOptions) (client.Row, error),
) ([]string, client.Row, error) {
	args, err := rowArgs(c)
	if err != nil {
		return nil, client.Row{}, err
	}
	o, err := readOptions(c)
	if err != nil {
		return nil, client.Row{}, err
	}
	cl, err := a.connect(c)
	if err != nil {
		return nil, client.Row{}, err
	}
	defer cl.Close()
	row, err := read(cl, c.Context, args[0], args[1], o)
	if err != nil {
		err = fmt.Errorf("%s %s/%s: %w", c.Command.Name, args[0], args[1], err)
	}
	return args, row, err
}

// rowArgs returns the arguments TABLE KEY and more, after checking the first two.
func rowArgs(c *cli.Context, more ...string) ([]string, error) {
	args, err := argsOf(c, append([]string{"TABLE", "KEY"}, more...)...)
	if err != nil {
		return nil, err
	}
	err = errors.Join(api.CheckTable(args[0]), api.CheckKey(args[1]))
	return args, withCode(exitUsage, err)
}
