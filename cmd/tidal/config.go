package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"tidal/node/config"
)

// configFlags are the flags that make a node's configuration: one for each key,
// the file, and --single.
func configFlags() []cli.Flag {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read the configuration from this `FILE`"},
		&cli.BoolFlag{Name: "single", Usage: "be a cluster of this node alone"},
	}
	for _, k := range config.Keys() {
		flags = append(flags, &cli.StringFlag{
			Name:     k.Flag(),
			Usage:    fmt.Sprintf("%s (`%s`, or %s)", k.Doc, k.Form, k.Env()),
			Category: "Configuration",
		})
	}
	return flags
}

// loadConfig reads a node's configuration. What it cannot read is an error of
// exit 3; whether the values make sense is not asked.
func (a *app) loadConfig(c *cli.Context) (config.Effective, error) {
	e, err := config.Load(config.Sources{
		File: c.String("config"),
		Env:  a.env,
		Flag: func(name string) (string, bool) {
			return c.String(name), c.IsSet(name)
		},
		Single: c.Bool("single"),
	})
	return e, withHint(withCode(exitConfig, err), "docs/configuration.md lists the keys with their forms, and has a whole file")
}

func (a *app) configCommand() *cli.Command {
	return &cli.Command{
		Name:  "config",
		Usage: "look at a node's configuration",
		Subcommands: []*cli.Command{{
			Name:   "explain",
			Usage:  "print each value of a node's configuration and where it came from",
			Flags:  append(configFlags(), outputFlag()),
			Action: a.explainConfig,
		}},
	}
}

func (a *app) explainConfig(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	e, err := a.loadConfig(c)
	if err != nil {
		return err
	}
	type value struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Source string `json:"source"`
	}
	var values []value
	var rows [][]string
	for _, k := range config.Keys() {
		v := value{Key: k.Name, Value: k.Value(e.Config), Source: e.Origin[k.Name]}
		values = append(values, v)
		rows = append(rows, []string{v.Key, orDash(v.Value), v.Source})
	}
	if format == formatJSON {
		err = a.writeJSON(values)
	} else {
		err = a.writeTable([]string{"KEY", "VALUE", "SOURCE"}, rows)
	}
	if err != nil {
		return err
	}
	return withCode(exitConfig, wrongConfig(e.Config.Validate()))
}

// wrongConfig puts a heading over what Validate found.
func wrongConfig(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the configuration is not one to start with:\n%w", err)
}

// orDash shows that a cell of a table is empty.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
