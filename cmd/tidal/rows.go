package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
)

func (a *app) rowsCommand() *cli.Command {
	consistency := &cli.StringFlag{
		Name:  "consistency",
		Usage: "linearizable, or local: what the answering node's replica has",
		Value: "linearizable",
	}
	return &cli.Command{
		Name:  "rows",
		Usage: "read and write rows",
		Subcommands: []*cli.Command{
			{
				Name:        "put",
				Usage:       "write a row",
				UsageText:   "tidal rows put TABLE KEY VALUE|-",
				Description: "The value - is what comes from stdin, byte for byte. The row's version is printed.",
				Flags:       append(connectFlags(), outputFlag()),
				Action:      a.rowsPut,
			},
			{
				Name:      "get",
				Usage:     "print a row's value, byte for byte",
				UsageText: "tidal rows get TABLE KEY [--consistency local]",
				Flags:     append(connectFlags(), consistency),
				Action:    a.rowsGet,
			},
			{
				Name:      "head",
				Usage:     "print a row's version and size",
				UsageText: "tidal rows head TABLE KEY [--consistency local]",
				Flags:     append(connectFlags(), consistency, outputFlag()),
				Action:    a.rowsHead,
			},
			{
				Name:      "delete",
				Usage:     "delete a row; one that is not there is fine",
				UsageText: "tidal rows delete TABLE KEY",
				Flags:     connectFlags(),
				Action:    a.rowsDelete,
			},
		},
	}
}

// rowOut is what put and head print.
type rowOut struct {
	Table string  `json:"table"`
	Key   string  `json:"key"`
	ETag  string  `json:"etag"`
	Size  *int64  `json:"size,omitempty"`
	Node  string  `json:"node,omitempty"`
	Owner string  `json:"owner,omitempty"`
	Lag   *uint64 `json:"lag,omitempty"`
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
		return fmt.Errorf("the row's value is too large: the limit is %d bytes", api.MaxValue)
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	v, err := cl.Put(c.Context, args[0], args[1], value, client.WriteOptions{})
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
	args, row, err := a.readRow(c, (*client.Client).Get)
	if err != nil {
		return err
	}
	if row.Lag > 0 {
		a.say("node %s lacks %d entries of table %s", row.Node, row.Lag, args[0])
	}
	_, err = a.stdout.Write(row.Value)
	return err
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
	out := rowOut{Table: args[0], Key: args[1], ETag: api.ETag(row.Version), Node: row.Node, Owner: row.Owner}
	size, lag := "-", "-"
	if row.Size >= 0 {
		out.Size, size = &row.Size, strconv.FormatInt(row.Size, 10)
	}
	if row.Owner == "" { // a local read
		out.Lag, lag = &row.Lag, strconv.FormatUint(row.Lag, 10)
	}
	if format == formatJSON {
		return a.writeJSON(out)
	}
	return a.writeTable([]string{"ETAG", "SIZE", "NODE", "OWNER", "LAG"},
		[][]string{{out.ETag, size, orDash(out.Node), orDash(out.Owner), lag}})
}

func (a *app) rowsDelete(c *cli.Context) error {
	args, err := rowArgs(c)
	if err != nil {
		return err
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.Delete(c.Context, args[0], args[1], client.WriteOptions{}); err != nil {
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
	var o client.ReadOptions
	switch how := c.String("consistency"); how {
	case "local":
		o.Local = true
	case "linearizable":
	default:
		return nil, client.Row{}, withHint(usagef("unknown --consistency %q", how), "it is linearizable or local")
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
