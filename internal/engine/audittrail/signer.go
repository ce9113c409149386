package audittrail

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// maxKeyFile bounds a key file.
const maxKeyFile = 64 << 10

// Signer loads the key that signs the chain from a file, which may change.
type Signer struct {
	path string

	mu   sync.Mutex
	text []byte
	key  job.ChainKey
	// lastError is the error of the last Reload; nil: none.
	lastError error
}

// LoadSigner reads a key file; see [job.ParseChainKeys].
func LoadSigner(path string) (*Signer, error) {
	s := &Signer{path: path}
	if _, err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the file again and reports whether it has changed. If the file is invalid, the previous key stays
// in use.
func (s *Signer) Reload() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, err = s.readKeyFile()
	s.lastError = err
	return changed, err
}

// Fault returns why the file cannot be used, so that the key read before signs; nil while it can.
func (s *Signer) Fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastError
}

func (s *Signer) readKeyFile() (changed bool, err error) {
	text, err := secretfile.Read(s.path, maxKeyFile)
	if err != nil {
		return false, err
	}
	if s.key.Key != nil && bytes.Equal(text, s.text) {
		return false, nil
	}
	keys, err := job.ParseChainKeys(string(text))
	if err != nil {
		return false, fmt.Errorf("%s: %w", s.path, err)
	}
	if err := secretfile.CheckKey(keys[0].Key.Seed()); err != nil {
		return false, fmt.Errorf("%s: key %s: %w", s.path, keys[0].ID, err)
	}
	s.text, s.key = text, keys[0]
	return true, nil
}

// Current returns the key that signs.
func (s *Signer) Current() *job.ChainKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.key
	return &key
}
