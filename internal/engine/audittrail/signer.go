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

// Signer has the keys of the chain, of a file that may change.
type Signer struct {
	file *filewatch.File[[]job.ChainKey]
}

// LoadSigner reads a key file; see [job.ParseChainKeys].
func LoadSigner(path string) (*Signer, error) {
	file, err := filewatch.Open(path, maxKeyFile, func(text []byte) ([]job.ChainKey, error) {
		keys, err := job.ParseChainKeys(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, key := range keys {
			if err := secretfile.CheckKey(key.Key.Seed()); err != nil {
				return nil, fmt.Errorf("%s: key %s: %w", path, key.ID, err)
			}
		}
		return keys, nil
	})
	if err != nil {
		return nil, err
	}
	return &Signer{file}, nil
}

// Reload reads the file again and reports whether it has changed. An invalid file is logged, and leaves the previous
// keys in use.
func (s *Signer) Reload(logger *slog.Logger) (changed bool) {
	return s.file.Reload(logger, "audit key file")
}

// LoadError is the error of the file while it is invalid and the keys read before are in use; nil while it is valid.
func (s *Signer) LoadError() error { return s.file.Fault() }

// Keys returns all keys. The first one signs.
func (s *Signer) Keys() []job.ChainKey { return s.file.Content() }
