package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// maxPEM bounds what is read of a file, in bytes: a wrong path must not fill the
// memory.
const maxPEM = 4 << 20

// readPEM reads a file of PEM blocks. A block that pem.Decode would skip in
// silence (cut off, indented, no newline before it) is an error that says where.
// It is not read if check refuses it.
func readPEM(path string, check func(path string, info fs.FileInfo) error) ([]*pem.Block, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, fileError(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, badFile(path, "", "is not a regular file")
	}
	if info.Size() > maxPEM {
		return nil, badFile(path, "", "has %d bytes, and certificates and keys have at most %d", info.Size(), maxPEM)
	}
	if err = check(path, info); err != nil {
		return nil, err
	}
	data := make([]byte, info.Size())
	n, err := f.ReadAt(data, 0)
	if n < len(data) {
		return nil, badFile(path, "", "cannot be read: %s", reason(err))
	}
	blocks, err := decodePEM(data)
	if err != nil {
		return nil, &Error{Kind: KindFiles, Message: path + ": " + err.Error(), Err: err, Hint: "write the file again; each -----BEGIN line stands alone at the left margin"}
	}
	return blocks, nil
}

func decodePEM(data []byte) ([]*pem.Block, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // a byte order mark would hide the first block
	const begin = "-----BEGIN "
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return nil, errors.New("is UTF-16 text, and PEM is ASCII")
	}
	if !bytes.Contains(data, []byte(begin)) {
		if len(data) > 1 && data[0] == 0x30 && data[1] >= 0x80 {
			return nil, errors.New("looks like DER, and PEM is wanted (openssl x509 or pkey with -inform der converts it)")
		}
		return nil, errors.New("holds no PEM block")
	}
	var blocks []*pem.Block
	rest := data
	for {
		var b *pem.Block
		before := rest
		b, rest = pem.Decode(rest)
		used := before[:len(before)-len(rest)]
		if b == nil {
			used = before
		}
		want := 1
		if b == nil {
			want = 0
		}
		if n := bytes.Count(used, []byte(begin)); n != want {
			at := len(data) - len(before) + bytes.Index(used, []byte(begin))
			return nil, fmt.Errorf("the PEM block that begins in line %d cannot be read: it is cut off, indented, damaged, or its first line does not stand alone",
				1+bytes.Count(data[:at], []byte("\n")))
		}
		if b == nil {
			return blocks, nil
		}
		blocks = append(blocks, b)
	}
}

// readCerts reads the certificates of a file, in its order. Blocks of other
// kinds are passed over.
func readCerts(path string) ([]*x509.Certificate, error) {
	blocks, err := readPEM(path, func(string, fs.FileInfo) error { return nil })
	if err != nil {
		return nil, err
	}
	return parseCerts(path, blocks)
}

func parseCerts(path string, blocks []*pem.Block) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	var kinds []string
	for i, b := range blocks {
		kinds = append(kinds, b.Type)
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, badFile(path, "", "block %d is not a certificate that can be used: %s", i+1, reason(err))
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, badFile(path, "are the paths of the certificate and the key swapped?", "holds no certificate, only %s", strings.Join(kinds, ", "))
	}
	return certs, nil
}

// readKey reads a private key: PKCS#8, SEC 1 (with or without a block of
// parameters before it) or PKCS#1. Certificates in the same file are passed over.
func readKey(path string) (crypto.Signer, error) {
	blocks, err := readPEM(path, checkMode)
	if err != nil {
		return nil, err
	}
	return parseKey(path, blocks)
}

func parseKey(path string, blocks []*pem.Block) (crypto.Signer, error) {
	var key crypto.Signer
	var kinds []string
	for _, b := range blocks {
		kinds = append(kinds, b.Type)
		if !strings.HasSuffix(b.Type, "PRIVATE KEY") {
			continue
		}
		if b.Type == "ENCRYPTED PRIVATE KEY" || b.Headers["DEK-Info"] != "" {
			return nil, badFile(path, "decrypt it for the node: openssl pkey -in FILE -out NEWFILE, mode 0600", "the key is encrypted with a passphrase, and tidal has no way to ask for it")
		}
		if key != nil {
			return nil, badFile(path, "", "holds more than one private key")
		}
		var err error
		if key, err = parseKeyBlock(b); err != nil {
			return nil, badFile(path, "", "the %s block cannot be used: %s", b.Type, reason(err))
		}
	}
	if key == nil {
		return nil, badFile(path, "are the paths of the certificate and the key swapped?", "holds no private key, only %s", strings.Join(kinds, ", "))
	}
	return key, nil
}

func parseKeyBlock(b *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch b.Type {
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(b.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	default:
		return nil, errors.New("this kind of key is not supported")
	}
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("this kind of key cannot sign")
	}
	return signer, nil
}

// reason returns an error's text without the path, which the caller shows once,
// and without the library's name.
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return strings.TrimPrefix(err.Error(), "x509: ")
}
