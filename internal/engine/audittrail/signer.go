package audittrail

import (
	"fmt"
	"log/slog"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/filewatch"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// maxKeyFile bounds a key file.
const maxKeyFile = 64 << 10

// Signer has the key that signs the chain, of a file that may change.
type Signer struct{ key *filewatch.File[job.ChainKey] }

// LoadSigner reads a key file; see [job.ParseChainKeys].
func LoadSigner(path string) (*Signer, error) {
	key, err := filewatch.Open(path, maxKeyFile, func(text []byte) (job.ChainKey, error) {
		keys, err := job.ParseChainKeys(string(text))
		if err != nil {
			return job.ChainKey{}, fmt.Errorf("%s: %w", path, err)
		}
		if err := secretfile.CheckKey(keys[0].Key.Seed()); err != nil {
			return job.ChainKey{}, fmt.Errorf("%s: key %s: %w", path, keys[0].ID, err)
		}
		return keys[0], nil
	})
	if err != nil {
		return nil, err
	}
	return &Signer{key}, nil
}

// Reload reads the file again and reports whether it has changed. An invalid file is logged, and leaves the previous
// key in use.
func (s *Signer) Reload(logger *slog.Logger) (changed bool) {
	return s.key.Reload(logger, "audit key file")
}

// LoadError is the error of the file while it is invalid and the key read before signs; nil while it is valid.
func (s *Signer) LoadError() error { return s.key.Fault() }

// SigningKeyID returns the key that signs.
func (s *Signer) SigningKeyID() *job.ChainKey {
	key := s.key.Content()
	return &key
}
