package main

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"tidal/roll"
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

// TestTopByHand: a roll whose operator's file has somebody restart the nodes is not begun
// on a screen, where nobody could be told to.
func TestTopByHand(t *testing.T) {
	r := &topRoller{w: &rolling{}, flags: func() (roll.Options, error) { return roll.Options{Driver: roll.DriverManual}, nil }}
	if _, err := r.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("plan: %v", err)
	}
	if _, err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("start: %v", err)
	}
}
