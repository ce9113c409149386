package exechandler

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Defaults of [Options].
const (
	DefaultPath  = "/usr/local/bin:/usr/bin:/bin"
	DefaultGrace = 2 * time.Second
)

// MaxExcerpt bounds how much of a program's output is kept, in bytes.
const MaxExcerpt = 2 << 10

// Options configure [New]. Allow is required.
type Options struct {
	// Allow are the programs that may run, by absolute path.
	Allow []string
	// Path is PATH for the programs. Default /usr/local/bin:/usr/bin:/bin.
	Path string
	// Grace is what a program has to end after SIGTERM. Default 2 s.
	Grace time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Path == "" {
		o.Path = DefaultPath
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if len(o.Allow) == 0 {
		return o, errors.New("exec handler: no program is allowed")
	}
	for _, program := range o.Allow {
		if !filepath.IsAbs(program) || filepath.Clean(program) != program {
			return o, fmt.Errorf("exec handler: %q is not a clean absolute path", program)
		}
	}
	if o.Grace < 0 {
		return o, errors.New("exec handler: Grace is negative")
	}
	return o, nil
}
