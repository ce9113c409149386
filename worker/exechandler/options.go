package exechandler

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/secrets"
)

// Defaults of [Options].
const (
	DefaultPath  = "/usr/local/bin:/usr/bin:/bin"
	DefaultGrace = 2 * time.Second
	DefaultHome  = "/nonexistent"
)

// MaxExcerpt bounds how much of a program's output is kept, in bytes.
const MaxExcerpt = 2 << 10

// Options configure [New]. Allow is required.
type Options struct {
	// Allow are the programs that may run, by absolute path.
	Allow []string
	// Dir is the working directory; that of a payload is in it or below. Default: / for
	// all programs, and a payload names no other.
	Dir string
	// Home is HOME for the programs, whatever the payload says: many read files there
	// that make them run code or ask another server. Default /nonexistent.
	Home string
	// Env are the variables that payloads may set, by name, or by the beginning of names
	// as in APP_*. Names of variables that steer loaders, interpreters and common tools
	// have to be given in full; those that the worker sets, and those of the dynamic loader
	// and of Go's runtime, cannot be given. Default none.
	Env []string
	// Path is PATH for the programs. Default /usr/local/bin:/usr/bin:/bin.
	Path string
	// Slots is how many attempts run at once. Where programs are of the worker's own user,
	// what the worker and the supervisors of so many need is added to Limits.Processes.
	// Default [worker.DefaultSlots].
	Slots int
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
	// handlers. Then it asks for the orphans of what it starts, reaps those that have
	// ended, and kills all of them if the supervisor of an attempt is killed. It spares
	// the children that this process has when the first handler is made.
	// Without Init it cannot tell them from processes that somebody here waits for: what
	// a program started goes on if the supervisor is killed, which a program of the same
	// user can do, and there is no control group. Default no.
	Init bool
	// Containment is how the processes of an attempt are kept together: a control group
	// beside the supervisor, which is then the second line, or the supervisor alone. Default:
	// the first where this process may make control groups.
	Containment Containment
	// Private are files of this process, and directories of such files, that programs
	// should not be able to read, such as secrets. A warning is logged if their modes let
	// programs read them. Default none.
	Private []string
	// Logger gets what an operator should know when the handler is made. Default none.
	Logger *slog.Logger
	// Secrets are what variables and stdin may refer to. Default none.
	Secrets *secrets.Dir
}

// Containment is a way to keep the processes of an attempt together.
type Containment string

// Values of [Containment].
const (
	ContainByCgroup    Containment = "cgroup"
	ContainBySubreaper Containment = "subreaper"
)

// User is a user and a group by number.
type User struct{ UID, GID uint32 }

// Limits bound each program and what it starts. 0 is no limit. Core files are never
// written.
type Limits struct {
	// CPU time, in whole seconds.
	CPU time.Duration
	// Memory is address space, in bytes.
	Memory int64
	// Files that are open at once. With no limit it is that of this process when it started.
	Files int
	// Processes of the user that the program runs as, its threads and those of
	// everything else included, but for this worker and its supervisors: see
	// Options.Slots. Root is not bound by it.
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
	if o.Slots == 0 {
		o.Slots = worker.DefaultSlots
	}
	if o.Home == "" {
		o.Home = DefaultHome
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
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
			return o, fmt.Errorf("exec handler: program %q is not a clean absolute path, such as /usr/bin/env", program)
		}
	}
	l := o.Limits
	switch {
	case o.Dir != "" && !filepath.IsAbs(o.Dir):
		return o, fmt.Errorf("exec handler: directory %q is not an absolute path", o.Dir)
	case !filepath.IsAbs(o.Home) || strings.ContainsRune(o.Home, 0):
		return o, fmt.Errorf("exec handler: home %q is not an absolute path", o.Home)
	case o.Containment != "" && o.Containment != ContainByCgroup && o.Containment != ContainBySubreaper:
		return o, fmt.Errorf("exec handler: containment %q is neither %q nor %q", o.Containment, ContainByCgroup, ContainBySubreaper)
	case o.Slots < 0:
		return o, errors.New("exec handler: Slots is negative")
	case o.Grace < 0:
		return o, errors.New("exec handler: Grace is negative")
	case l.CPU < 0 || l.Memory < 0 || l.Files < 0 || l.Processes < 0 || l.FileSize < 0:
		return o, errors.New("exec handler: a limit is negative")
	}
	return o, nil
}
