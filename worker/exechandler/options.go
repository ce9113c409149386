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

// MaxExcerpt is the maximum number of bytes of a program's output that are kept with the run.
const MaxExcerpt = 2 << 10

// Options configure [New]. Allow is required.
type Options struct {
	// Allow are the absolute paths of the programs that may run. Required.
	Allow []string
	// Dir is the working directory. A payload may choose it or a directory below it. Default: /, and a payload
	// cannot choose.
	Dir string
	// Home is the HOME of programs; payloads cannot change it, because many programs read files there that make
	// them run code or contact servers. Default /nonexistent.
	Home string
	// Env are the variables that payloads may set: names, or prefixes such as APP_*. Names that control loaders,
	// interpreters and common tools must be given in full. Variables that the worker sets, and those of the
	// dynamic loader and of Go's runtime, are rejected. Default none.
	Env []string
	// Path is the PATH of programs. Default /usr/local/bin:/usr/bin:/bin.
	Path string
	// Slots is the maximum number of concurrent attempts, as in [worker.Options]. If programs run as the
	// worker's own user, the processes of the worker and its supervisors are added to Limits.Processes. Default
	// [worker.DefaultSlots].
	Slots int
	// Grace is the time between SIGTERM and SIGKILL. Default 2 s.
	Grace time.Duration
	// Limits are the resource limits of each program. Default [DefaultLimits].
	Limits *Limits
	// User is the user that programs run as. Another user than the worker's own requires root. Default: the
	// worker's user, without its supplementary groups.
	User *User
	// AllowRoot allows programs to run as root. Default false: New returns an error.
	AllowRoot bool
	// ReapOrphans declares that all child processes of this process belong to this package's handlers, as in a
	// container of its own. Then orphans are adopted and reaped, all of them are killed if the supervisor of an
	// attempt is killed, and control groups can be used. Children that exist when the first handler is made are
	// spared. Without Init, processes of a program survive if their supervisor is killed, which a program of the
	// same user can do. Default false.
	ReapOrphans bool
	// Containment is how the processes of an attempt are kept together: a control group in addition to the
	// supervisor, or the supervisor only. Default: a control group if this process may create one.
	Containment Containment
	// Private are files, and directories of files, that programs should not be able to read, such as secrets.
	// New logs a warning if their modes permit it. Default none.
	Private []string
	// Logger receives warnings when the handler is made. Default none.
	Logger *slog.Logger
	// Secrets are the secrets that variables and stdin may refer to. Default none.
	Secrets *secrets.Dir
}

// Containment is how the processes of an attempt are kept together.
type Containment string

// Values of [Containment].
const (
	ContainByCgroup    Containment = "cgroup"
	ContainBySubreaper Containment = "subreaper"
)

// User is a numeric user and group id.
type User struct{ UID, GID uint32 }

// Limits bound each program and its descendants. 0 means no limit. Core files are never written.
type Limits struct {
	// CPU is the CPU time, rounded to whole seconds.
	CPU time.Duration
	// Memory is the address space, in bytes.
	Memory int64
	// Files is the number of open files. 0: the limit that this process had at its start.
	Files int
	// Processes is the number of processes and threads of the program's user, including those of other programs,
	// but not counting this worker and its supervisors; see Options.Slots. It does not bind root.
	Processes int
	// FileSize is the size of each written file, in bytes.
	FileSize int64
}

// DefaultLimits returns one hour of CPU time, 4 GiB of memory, 1,024 open files, 512 processes, and no limit on
// file sizes.
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
		return o, fmt.Errorf("exec handler: containment %q is neither %q nor %q", o.Containment, ContainByCgroup,
			ContainBySubreaper)
	case o.Slots < 0:
		return o, errors.New("exec handler: Slots is negative")
	case o.Grace < 0:
		return o, errors.New("exec handler: Grace is negative")
	case l.CPU < 0 || l.Memory < 0 || l.Files < 0 || l.Processes < 0 || l.FileSize < 0:
		return o, errors.New("exec handler: a limit is negative")
	}
	return o, nil
}
