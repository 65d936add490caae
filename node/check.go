package node

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/config"
	"tidal/node/internal/store"
	"tidal/pki"
)

// Check finds out whether a node could start with this configuration, as far as
// that can be told without stopping the one that runs on the same directory: the
// certificates are read and checked, and the data is of a format that this binary
// knows. It touches neither the port nor the directory's lock, and opens no
// database.
func Check(c config.Config) error {
	if _, err := loadKeys(c); err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	if err := store.CheckFormat(vfs.Default, formatFile(c)); err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	return nil
}

// formatFile is where a node notes the format of its database.
func formatFile(c config.Config) string { return filepath.Join(c.Node.Data, "FORMAT") }

// loadKeys returns the node's certificates, nil in a plaintext cluster.
func loadKeys(c config.Config) (*pki.Keypair, error) {
	if c.Plaintext() {
		return nil, nil
	}
	f := pki.Files{CA: c.TLS.CA, Cert: c.TLS.Cert, Key: c.TLS.Key}
	return pki.LoadServer(f, c.Cluster.Name, c.Node.ID, time.Now())
}
