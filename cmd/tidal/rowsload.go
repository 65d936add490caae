package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
)

// loadBytes is how much of a file goes into a batch, unless a line alone is longer.
const loadBytes = 1 << 20

func (a *app) rowsLoadCommand() *cli.Command {
	return &cli.Command{
		Name:      "load",
		Usage:     "write many rows, from the lines of a file",
		UsageText: "tidal rows load TABLE FILE|- [--whole]",
		Description: `A line is {"key":"k","value":"text"}, {"key":"k","value_base64":"…"} or {"key":"k","delete":true}. ` +
			"A file is checked first as a whole, and then sent in batches, in its order; each is done whole or not at all. If one fails, " +
			"the error says from which line on nothing was done. With --whole all lines are one batch, of up to " +
			strconv.Itoa(api.MaxChanges) + " lines and 8 MiB. With --idempotency-key the same file can be loaded again within 15 minutes: " +
			"each batch is done once.",
		Flags: append(connectFlags(), outputFlag(),
			&cli.IntFlag{Name: "batch", Usage: "lines in a batch, up to " + strconv.Itoa(api.MaxChanges), Value: 1000},
			&cli.BoolFlag{Name: "whole", Usage: "all lines are done, or none"},
			&cli.StringFlag{Name: "idempotency-key", Usage: "name of this load, to run it again safely within 15 minutes"},
		),
		Action: a.rowsLoad,
	}
}

// loadOut is what load prints.
type loadOut struct {
	Table   string `json:"table"`
	Changes int    `json:"changes"`
	Batches int    `json:"batches"`
	Version string `json:"version,omitempty"` // of the last batch
}

func (a *app) rowsLoad(c *cli.Context) error {
	args, err := argsOf(c, "TABLE", "FILE|-")
	if err != nil {
		return err
	}
	if err = api.CheckTable(args[0]); err != nil {
		return withCode(exitUsage, err)
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	l := load{table: args[0], name: args[1], lines: c.Int("batch"), whole: c.Bool("whole"), key: c.String("idempotency-key")}
	if l.whole && c.IsSet("batch") {
		return usagef("rows load: --whole makes one batch of all lines, and --batch many")
	}
	if l.lines < 1 || l.lines > api.MaxChanges {
		return usagef("--batch: %d is not from 1 to %d", l.lines, api.MaxChanges)
	}
	if room := api.MaxIdem - len("/") - 19; len(l.key) > room {
		return usagef("--idempotency-key of a load has 1 to %d bytes", room)
	}
	in, done, err := a.loadFrom(&l)
	if err != nil {
		return err
	}
	defer done()
	if l.client, err = a.connectToChange(c); err != nil {
		return err
	}
	defer l.client.Close()
	l.out.Table = l.table
	if err := l.each(in, func(body []byte, first int) error { return l.send(c.Context, body, first) }); err != nil {
		return fmt.Errorf("load %s: %w", l.name, err)
	}
	if format == formatJSON {
		return a.writeJSON(l.out)
	}
	return a.writeTable([]string{"TABLE", "CHANGES", "BATCHES", "VERSION"},
		[][]string{{l.table, strconv.Itoa(l.out.Changes), strconv.Itoa(l.out.Batches), orDash(l.out.Version)}})
}

// loadFrom opens what is to be loaded. A file is checked as a whole before.
func (a *app) loadFrom(l *load) (in io.Reader, done func(), err error) {
	if l.name == "-" {
		l.name = "stdin"
		return a.stdin, func() {}, nil
	}
	f, err := os.Open(l.name)
	if err != nil {
		return nil, nil, withCode(exitUsage, err)
	}
	done = func() { _ = f.Close() } // it was only read
	check := func(body []byte, first int) error {
		_, bad := api.ParseChanges(body, first)
		return bad
	}
	if err = l.each(f, check); err == nil && !l.any {
		err = withHint(errors.New("it has no lines"), `a line is {"key":"k","value":"text"}`)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, nil, withHint(fmt.Errorf("%s, and nothing was sent: %w", l.name, err), hintOf(err))
	}
	return f, done, nil
}

// load is a load of rows.
type load struct {
	table, name string
	lines       int // of a batch at most
	whole       bool
	key         string
	client      *client.Client
	out         loadOut
	any         bool // there was a line
}

// each calls f with the lines of each batch, and the number of the first of them.
func (l *load) each(r io.Reader, f func(body []byte, first int) error) error {
	in := bufio.NewReaderSize(r, loadBytes)
	for first := 1; ; {
		body, n, err := l.batch(in, first)
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return err
		}
		if len(bytes.TrimSpace(body)) > 0 {
			l.any = true
			if err = f(body, first); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
		first += n
	}
}

// batch reads the lines of the next batch, and how many they are. The error is
// io.EOF with the last of them.
func (l *load) batch(in *bufio.Reader, first int) (body []byte, n int, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if body = append(body, part...); len(body) > api.MaxBatch {
			if l.whole {
				return nil, 0, fmt.Errorf("it is larger than a batch may be, which is %d bytes: load it without --whole", api.MaxBatch)
			}
			return nil, 0, fmt.Errorf("line %d is longer than a batch may be, which is %d bytes", first+n, api.MaxBatch)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return body, n, err
		}
		n++
		if !l.whole && (n == l.lines || len(body) >= loadBytes) {
			return body, n, nil
		}
	}
}

// send sends a batch.
func (l *load) send(ctx context.Context, body []byte, first int) error {
	changes, err := api.ParseChanges(body, first)
	if err != nil {
		return l.stopped(first, err)
	}
	o := client.BatchOptions{}
	if l.key != "" {
		o.Key = l.key + "/" + strconv.Itoa(first)
	}
	v, err := l.client.BatchLines(ctx, l.table, body, o)
	if err != nil {
		return l.stopped(first, err)
	}
	l.out.Changes += len(changes)
	l.out.Batches++
	l.out.Version = v.String()
	return nil
}

// stopped says how far the load came.
func (l *load) stopped(first int, err error) error {
	what := "nothing was done"
	if first > 1 {
		what = fmt.Sprintf("%d changes were done, and nothing from line %d on", l.out.Changes, first)
	}
	if api.CodeOf(err) == api.CodeOutcomeUnknown {
		what = fmt.Sprintf("%d changes were done; of the batch from line %d on it is not known", l.out.Changes, first)
	}
	return fmt.Errorf("%s: %w", what, err)
}
