package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// stamped is set by the linker: -ldflags "-X main.stamped=v0.1.0".
var stamped string //nolint:gochecknoglobals // the linker can set nothing else

// version returns the release that the binary was built as: what the linker was
// told, else the module's version, else devel.
func version() string {
	if stamped != "" {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func (a *app) versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version of this binary",
		Flags: []cli.Flag{outputFlag()},
		Action: func(c *cli.Context) error {
			if _, err := argsOf(c); err != nil {
				return err
			}
			format, err := formatOf(c)
			if err != nil {
				return err
			}
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{version(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
			if format == formatJSON {
				return a.writeJSON(v)
			}
			_, err = fmt.Fprintf(a.stdout, "tidal %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
			return err
		},
	}
}
