//go:build !linux

package exechandler

import (
	"errors"

	"github.com/fermata-io/fermata/worker"
)

// New fails: process groups are handled on Linux only.
func New(o Options) (worker.Handler, error) {
	if _, err := o.withDefaults(); err != nil {
		return nil, err
	}
	return nil, errors.New("exec handler: runs on Linux only")
}
