//go:build !linux || !(amd64 || arm64)

package exechandler

import (
	"errors"

	"github.com/fermata-io/fermata/worker"
)

// New returns an error: programs are started by system calls of Linux that differ by architecture.
func New(o Options) (worker.Handler, error) {
	if _, err := o.withDefaults(); err != nil {
		return nil, err
	}
	return nil, errors.New("exec handler: runs only on Linux on amd64 and arm64")
}
