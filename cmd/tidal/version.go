package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
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
			levels, err := a.levels()
			if err != nil {
				return err
			}
			v := api.Release{Version: version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Levels: levels}
			if format == formatJSON {
				return a.writeJSON(v)
			}
			_, err = fmt.Fprintf(a.stdout, "tidal %s (%s, %s/%s; feature %s)\n", v.Version, v.Go, v.OS, v.Arch, v.Levels)
			return err
		},
	}
}
