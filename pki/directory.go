package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.step.sm/crypto/pemutil"
)

// The layout of a directory, relative to it.
const (
	bundleFile   = "bundle.crt"
	rootCert     = "ca/root.crt"
	rootKeyFile  = "ca/root.key"
	interCert    = "ca/intermediate.crt"
	interKeyFile = "ca/intermediate.key"
	serialsFile  = "serials.jsonl"

	keyMode  = 0o600
	certMode = 0o644
	dirMode  = 0o700
)

// NodeFiles returns where Gen puts a node's certificate, key and bundle.
func NodeFiles(dir, id string) Files { return leafFiles(dir, "nodes/"+id) }

// ClientFiles returns where Gen puts a client's certificate, key and bundle.
func ClientFiles(dir, name string) Files { return leafFiles(dir, "clients/"+name) }

func leafFiles(dir, folder string) Files {
	return Files{
		CA:   filepath.Join(dir, bundleFile),
		Cert: filepath.Join(dir, folder, "tls.crt"),
		Key:  filepath.Join(dir, folder, "tls.key"),
	}
}

// write is one file still to be written. The order of writes is such that a run
// that ends after any of them is completed by the next: a key comes before the
// certificate that is useless without it.
type write struct {
	path  string // relative to the directory
	mode  fs.FileMode
	data  []byte
	after bool // append to what is there
}

func writeKey(path string, key crypto.Signer) (write, error) {
	b, err := pemutil.Serialize(key, pemutil.WithPKCS8(true))
	if err != nil {
		return write{}, fmt.Errorf("%s: %w", path, err)
	}
	return write{path: path, mode: keyMode, data: pem.EncodeToMemory(b)}, nil
}

func writeCerts(path string, certs ...*x509.Certificate) write {
	var b bytes.Buffer
	for _, c := range certs {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	return write{path: path, mode: certMode, data: b.Bytes()}
}

// serialRecord is a line of serials.jsonl, the list of everything that was
// signed. A certificate is written after its line.
type serialRecord struct {
	Serial   string    `json:"serial"` // hex
	Subject  string    `json:"subject"`
	Names    []string  `json:"names,omitempty"`
	URI      string    `json:"uri,omitempty"`
	NotAfter time.Time `json:"not_after"`
	Issuer   string    `json:"issuer"` // the issuer's key id, hex
}

func writeSerials(certs []*x509.Certificate) (write, error) {
	var b bytes.Buffer
	for _, c := range certs {
		r := serialRecord{
			Serial: serialHex(c), Subject: c.Subject.CommonName, Names: certNames(c),
			NotAfter: c.NotAfter.UTC(), Issuer: hex.EncodeToString(c.AuthorityKeyId),
		}
		for _, u := range c.URIs {
			r.URI = u.String()
		}
		line, err := json.Marshal(r)
		if err != nil {
			return write{}, err
		}
		b.Write(append(line, '\n'))
	}
	return write{path: serialsFile, mode: certMode, data: b.Bytes(), after: true}, nil
}

// directory writes below one path, each file whole and durable or not at all.
type directory struct {
	path  string
	wrote func(path string) error // called after each write; nil: nothing to do
}

// exists reports whether a file is there, also one that cannot be read.
func (d directory) exists(name string) (bool, error) {
	_, err := os.Lstat(d.join(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fileError(d.join(name), err)
	}
	return true, nil
}

func (d directory) join(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

func (d directory) run(writes []write) error {
	for _, w := range writes {
		path := d.join(w.path)
		if err := makeDir(filepath.Dir(path)); err != nil {
			return err
		}
		put := putFile
		if w.after {
			put = appendFile
		}
		if err := put(path, w.data, w.mode); err != nil {
			return fileError(path, err)
		}
		if d.wrote != nil {
			if err := d.wrote(w.path); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeDir makes a directory and the missing ones above it, for its owner alone.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if info.IsDir() {
			return nil
		}
		return badFile(dir, "", "is not a directory")
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fileError(dir, err)
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return fileError(dir, err)
	}
	return nil
}

// putFile writes a file beside its place and renames it there. The mode is the
// file's from its first moment; a key is never open to others, not even briefly.
func putFile(path string, data []byte, mode fs.FileMode) error {
	dir, name := filepath.Split(path)
	temp := filepath.Join(dir, "."+name+".tmp")
	// One that a killed run left: nobody else writes here, the directory is locked.
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return syncDir(dir)
}

// appendFile adds whole lines to a file. A line that a killed run left unended
// is ended first.
func appendFile(path string, data []byte, mode fs.FileMode) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(old) > 0 && old[len(old)-1] != '\n' {
		data = append([]byte{'\n'}, data...)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// removeTemp removes what a killed run left beside a file.
func (d directory) removeTemp(name string) error {
	dir, base := filepath.Split(d.join(name))
	if err := os.Remove(filepath.Join(dir, "."+base+".tmp")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError(dir, err)
	}
	return nil
}
