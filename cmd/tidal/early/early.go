package early

import "os"

// mine is whether this package set the variable.
var mine bool //nolint:gochecknoglobals // the one exception: it must be there before other packages' init

// variable makes bubbletea's terminal library believe that nobody is at the other
// end of the terminal.
const variable = "CI"

func init() { //nolint:gochecknoinits // the one exception: it must run before bubbletea's init
	if _, set := os.LookupEnv(variable); !set {
		mine = os.Setenv(variable, "1") == nil
	}
}

// Restore takes back what init did. main calls it first.
func Restore() error {
	if !mine {
		return nil
	}
	mine = false
	return os.Unsetenv(variable)
}
