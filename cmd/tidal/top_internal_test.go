package main

import (
	"testing"

	"github.com/urfave/cli/v2"

	"tidal/tui"
)

// TestTopASCII: --ascii holds where the locale is UTF-8 too.
func TestTopASCII(t *testing.T) {
	a := &app{}
	a.env = func(name string) (string, bool) {
		if name == "LANG" {
			return "C.UTF-8", true
		}
		return "", false
	}
	for _, ascii := range []bool{false, true} {
		var o tui.Options
		top := a.topCommand()
		top.Action = func(c *cli.Context) (err error) {
			o, err = a.topOptions(c)
			return err
		}
		words := []string{"tidal", "top"}
		if ascii {
			words = append(words, "--ascii")
		}
		if err := (&cli.App{Commands: []*cli.Command{top}}).RunContext(t.Context(), words); err != nil {
			t.Fatal(err)
		}
		if a.look(&o); o.ASCII != ascii {
			t.Errorf("%v: ASCII is %t", words, o.ASCII)
		}
	}
}
