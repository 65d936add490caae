package node

import (
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/config"
	"tidal/node/internal/meta"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
	"tidal/pki"
)

// Check finds out whether a node could start with this configuration, as far as
// that can be told without stopping the one that runs on the same directory: the
// certificates are read and checked, and the data is of a format that this binary
// knows, in a cluster whose feature level it speaks. It touches neither the port nor
// the directory's lock, and opens no database. Zero levels are this release's.
func Check(c config.Config, version string, speaks api.Levels) error {
	if _, err := loadKeys(c); err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	if err := store.CheckFormat(vfs.Default, formatFile(c)); err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	if speaks == (api.Levels{}) {
		speaks = Levels()
	}
	level, known, err := store.ReadNote(vfs.Default, levelFile(c))
	if err == nil && known && !speaks.Speaks(level) {
		e := meta.LevelError(c.Node.ID, version, speaks, level)
		err = fmt.Errorf("%s: %s", e.Message, e.Hint)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	return nil
}

// Levels returns the feature levels that this release speaks.
func Levels() api.Levels { return wire.Levels() }

// levelFile is where a node notes the cluster's feature level, which the database
// holds too: a binary that is about to take the node over can read it here.
func levelFile(c config.Config) string { return filepath.Join(c.Node.Data, "LEVEL") }

// formatFile is where a node notes the format of its database.
func formatFile(c config.Config) string { return filepath.Join(c.Node.Data, "FORMAT") }

// loadKeys returns the node's certificates, nil in a plaintext cluster.
func loadKeys(c config.Config) (*pki.Keypair, error) {
	if c.Plaintext() {
		return nil, nil
	}
	f := pki.Files{CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key}
	if u, err := url.Parse(c.Node.Advertise); err == nil { // the configuration was checked
		f.Dialled = u.Hostname()
	}
	return pki.LoadServer(f, c.Cluster.Name, c.Node.ID, time.Now())
}
