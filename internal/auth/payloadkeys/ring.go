package payloadkeys

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/filewatch"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// Limits of a key file.
const (
	MaxKeys     = 64
	maxFileSize = 64 << 10
	keySize     = 32
)

// keyRing is the parsed content of a key file.
type keyRing struct {
	sealingID string
	byID      map[string]cipher.AEAD
	signing   map[string][]byte // keys derived for signatures
}

// Ring holds the keys of a file. It is safe for concurrent use.
type Ring struct {
	strict       bool
	keys         *filewatch.File[*keyRing]
	usesVersion2 atomic.Bool
}

// Options are the requirements of a ring for the payloads that it decrypts.
type Options struct {
	// RequireVersion2 refuses payloads that are unencrypted, or encrypted by version 1. A strict ring encrypts by
	// version 2 from the start.
	RequireVersion2 bool
}

// Load reads a key file: a line "id base64key" for each key of 32 bytes, the encrypting one first. Empty lines
// and lines that begin with # are ignored.
func Load(path string, o Options) (*Ring, error) {
	keys, err := filewatch.Open(path, maxFileSize, func(text []byte) (*keyRing, error) {
		k, err := parseKeyFile(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return k, nil
	})
	if err != nil {
		return nil, fmt.Errorf("payload keys: %w", err)
	}
	r := &Ring{keys: keys, strict: o.RequireVersion2}
	r.usesVersion2.Store(o.RequireVersion2)
	return r, nil
}

// Reload reads the file again and reports whether the keys have changed. An invalid file is logged, and leaves the
// keys read before in use.
func (r *Ring) Reload(logger *slog.Logger) (changed bool) {
	return r.keys.Reload(logger, "payload key file")
}

// LoadError is the error of the file while it is invalid and the keys read before stay in use; nil while it is
// valid.
func (r *Ring) LoadError() error { return r.keys.Fault() }

// EncryptingKeyID is the id of the encrypting key.
func (r *Ring) EncryptingKeyID() string { return r.keys.Content().sealingID }

// Count is the number of keys in the ring, including the encrypting one.
func (r *Ring) Count() int { return len(r.keys.Content().byID) }

// RequiresVersion2 reports whether the ring refuses payloads that are not encrypted by version 2.
func (r *Ring) RequiresVersion2() bool { return r.strict }

// UseVersion2 makes the ring encrypt by version 2 from now on. It cannot be reverted, so that a writer to Redis cannot
// make a running node encrypt by version 1 again.
func (r *Ring) UseVersion2() { r.usesVersion2.Store(true) }

// Version is the version by which the ring encrypts.
func (r *Ring) Version() int {
	if r.usesVersion2.Load() {
		return job.SealOfWork
	}
	return job.SealOfJob
}

// parseKeyFile parses the lines of a key file. Its errors name lines, never their content.
func parseKeyFile(text []byte) (*keyRing, error) {
	k := &keyRing{byID: map[string]cipher.AEAD{}, signing: map[string][]byte{}}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 || job.ValidateKeyID(fields[0]) != "" {
			return nil, fmt.Errorf("line %d: want an id of 1 to 32 letters, digits and any of . _ -, and a key", n)
		}
		raw, err := base64.StdEncoding.DecodeString(fields[1])
		if err != nil || len(raw) != keySize {
			return nil, fmt.Errorf("line %d: want the base64 of %d bytes; make one with: head -c 32 /dev/urandom | "+
				"base64", n, keySize)
		}
		if err := secretfile.CheckKey(raw); err != nil {
			return nil, fmt.Errorf("line %d: the key could be guessed: %w", n, err)
		}
		if k.byID[fields[0]] != nil || len(k.byID) == MaxKeys {
			return nil, fmt.Errorf("line %d: an id that is there already, or more than %d keys", n, MaxKeys)
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, err
		}
		k.byID[fields[0]], err = cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		k.signing[fields[0]] = authenticate(raw, "fermata signing key")
		if k.sealingID == "" {
			k.sealingID = fields[0]
		}
	}
	if k.sealingID == "" {
		return nil, errors.New("holds no key")
	}
	return k, nil
}
