//go:build !unix

package pki

import (
	"io"
	"io/fs"
	"os"
)

// checkMode accepts every file: permission bits say nothing here.
func checkMode(string, fs.FileInfo) error { return nil }

// lock only opens the directory: there is no lock of a directory here.
func lock(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fileError(dir, err)
	}
	return f, nil
}

// syncDir does nothing: directories cannot be synced here.
func syncDir(string) error { return nil }
