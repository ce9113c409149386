package exechandler

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fermata-io/fermata/worker/secrets"
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
	// Dir is the working directory; that of a payload is in it or below. Default /.
	Dir string
	// Path is PATH for the programs. Default /usr/local/bin:/usr/bin:/bin.
	Path string
	// Grace is what a program has to end after SIGTERM. Default 2 s.
	Grace time.Duration
	// Limits of each program. Default [DefaultLimits].
	Limits *Limits
	// User is whom programs run as; the worker has to be root for another one than
	// its own. Default the worker's own, and no supplementary groups are taken over.
	User *User
	// AllowRoot lets programs run as root. Default no: such a worker does not start.
	AllowRoot bool
	// Init says that all processes this one starts are those of this package's
	// handlers. Where it is the first of its container too, or has asked for the
	// orphans of what it starts, it reaps all others that come to it and have ended;
	// without Init only those that it killed, as it cannot tell the rest from
	// processes that somebody here waits for. Default no.
	Init bool
	// Secrets are what variables and stdin may refer to. Default none.
	Secrets *secrets.Dir
}

// User is a user and a group by number.
type User struct{ UID, GID uint32 }

// Limits bound each program and what it starts. 0 is no limit. Core files are never
// written.
type Limits struct {
	// CPU time, in whole seconds.
	CPU time.Duration
	// Memory is address space, in bytes.
	Memory int64
	// Files that are open at once.
	Files int
	// Processes of the user that the program runs as, its threads and those of
	// everything else included. Root is not bound by it.
	Processes int
	// FileSize of each file that is written, in bytes.
	FileSize int64
}

// DefaultLimits are an hour of CPU time, 4 GiB, 1,024 files, 512 processes and files
// of any size.
func DefaultLimits() Limits {
	return Limits{CPU: time.Hour, Memory: 4 << 30, Files: 1024, Processes: 512}
}

func (o Options) withDefaults() (Options, error) {
	if o.Path == "" {
		o.Path = DefaultPath
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Dir == "" {
		o.Dir = "/"
	}
	if o.Limits == nil {
		l := DefaultLimits()
		o.Limits = &l
	}
	if len(o.Allow) == 0 {
		return o, errors.New("exec handler: no program is allowed")
	}
	for _, program := range o.Allow {
		if !filepath.IsAbs(program) || filepath.Clean(program) != program {
			return o, fmt.Errorf("exec handler: %q is not a clean absolute path", program)
		}
	}
	l := o.Limits
	switch {
	case !filepath.IsAbs(o.Dir):
		return o, fmt.Errorf("exec handler: directory %q is not an absolute path", o.Dir)
	case o.Grace < 0:
		return o, errors.New("exec handler: Grace is negative")
	case l.CPU < 0 || l.Memory < 0 || l.Files < 0 || l.Processes < 0 || l.FileSize < 0:
		return o, errors.New("exec handler: a limit is negative")
	}
	return o, nil
}
