package payloadkeys

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// Limits of a key file.
const (
	MaxKeys = 64
	maxFile = 64 << 10
	keySize = 32
)

var keyID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// keys is one reading of a key file.
type keys struct {
	text  []byte // of the file
	first string
	byID  map[string]cipher.AEAD
}

// Ring holds the keys of a file. It is safe for concurrent use.
type Ring struct {
	path   string
	strict bool
	mu     sync.Mutex // of Reload
	keys   atomic.Pointer[keys]
	binds  atomic.Bool
	// fault is what Reload found last; nil: nothing.
	fault atomic.Pointer[error]
}

// Options say what a ring demands of what it opens.
type Options struct {
	// Strict refuses payloads that are not sealed, or by version 1. What is sealed is of
	// version 2 from the start.
	Strict bool
}

// Load reads a key file: a line "id base64key" for each key of 32 bytes, the sealing
// one first; empty lines and those that begin with # are left out.
func Load(path string, o Options) (*Ring, error) {
	r := &Ring{path: path, strict: o.Strict}
	r.binds.Store(o.Strict)
	_, err := r.Reload()
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Reload reads the file again and tells whether it has other keys now. One that cannot be
// used leaves the keys read before in force.
func (r *Ring) Reload() (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if changed, err = r.read(); err != nil {
		r.fault.Store(&err)
		return false, err
	}
	r.fault.Store(nil)
	return changed, nil
}

// Fault is why the file cannot be used, so that the keys read before are in force; nil
// while it can.
func (r *Ring) Fault() error {
	if fault := r.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

func (r *Ring) read() (changed bool, err error) {
	text, err := secretfile.Read(r.path, maxFile)
	switch before := r.keys.Load(); {
	case err != nil:
		return false, fmt.Errorf("payload keys: %w", err)
	case before != nil && bytes.Equal(before.text, text):
		return false, nil
	}
	k, err := parse(text)
	if err != nil {
		return false, fmt.Errorf("payload keys: %s: %w", r.path, err)
	}
	r.keys.Store(k)
	return true, nil
}

// Current is the id of the key that seals.
func (r *Ring) Current() string { return r.keys.Load().first }

// Count is how many keys the ring has, that which seals included.
func (r *Ring) Count() int { return len(r.keys.Load().byID) }

// Strict reports whether the ring refuses payloads that are not sealed by version 2.
func (r *Ring) Strict() bool { return r.strict }

// Bind has the ring seal by version 2 from now on. There is no way back, so that whoever
// can write to Redis cannot have a running node seal by version 1 again.
func (r *Ring) Bind() { r.binds.Store(true) }

// Version is the version by which the ring seals.
func (r *Ring) Version() int {
	if r.binds.Load() {
		return job.SealOfWork
	}
	return job.SealOfJob
}

// parse reads the lines of a key file. Its errors name lines, never what is in them.
func parse(text []byte) (*keys, error) {
	k := &keys{text: text, byID: map[string]cipher.AEAD{}}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 || !keyID.MatchString(fields[0]) {
			return nil, fmt.Errorf("line %d: want an id of 1 to 32 letters, digits and any of . _ -, and a key", n)
		}
		raw, err := base64.StdEncoding.DecodeString(fields[1])
		if err != nil || len(raw) != keySize {
			return nil, fmt.Errorf("line %d: want the base64 of %d bytes; make one with: head -c 32 /dev/urandom | base64", n, keySize)
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
		if k.byID[fields[0]], err = cipher.NewGCM(block); err != nil {
			return nil, err
		}
		if k.first == "" {
			k.first = fields[0]
		}
	}
	if k.first == "" {
		return nil, errors.New("holds no key")
	}
	return k, nil
}
