package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/exechandler"
	"github.com/fermata-io/fermata/worker/httphandler"
	"github.com/fermata-io/fermata/worker/secrets"
)

// handlerFlags select the handlers and their permissions.
type handlerFlags struct {
	secretsDir string

	http      bool
	httpAllow []string
	httpPorts []uint

	execAllow       []string
	execEnv         []string
	execDir         string
	execHome        string
	execUser        string
	execAllowRoot   bool
	execContainment string
	execLimits      exechandler.Limits
}

func (f *handlerFlags) registerFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.secretsDir, "secrets-dir", "",
		"directory of the secrets that payloads may name as ${secret:name}: a file name each, and name.allow "+
			"beside it "+
			"with the origins (https://example.com) and programs that it may go to, one a line")
	flags.BoolVar(&f.http, "http", true, "run jobs with the handler http")
	flags.StringSliceVar(&f.httpAllow, "http-allow", nil,
		"networks that are not public, such as 10.0.0.0/8, to which requests may go at any port; "+
			"a cloud's metadata address has to be listed by itself")
	flags.UintSliceVar(&f.httpPorts, "http-ports", []uint{80, 443}, "ports of public addresses that requests may go to")
	flags.StringSliceVar(&f.execAllow, "exec-allow", nil,
		"absolute paths of the programs that jobs with the handler exec may run; a run of another program fails "+
			"without a retry; empty: no handler exec")
	flags.StringSliceVar(&f.execEnv, "exec-env", nil,
		"variables that payloads may set for programs, by name, or by the beginning of names as in APP_*; none: no "+
			"payload sets any")
	flags.StringVar(&f.execDir, "exec-dir", "",
		"working directory of programs; the dir of a payload is an absolute path, this one or below it, or else "+
			"the run fails without a retry (default: / for all programs, and payloads name no other)")
	flags.StringVar(&f.execHome, "exec-home", exechandler.DefaultHome,
		"HOME of programs, which a payload cannot change")
	flags.StringVar(&f.execContainment, "exec-containment", containmentAuto,
		"how the processes of an attempt are kept together and ended with it: cgroup, which needs a control group "+
			"(version 2) that "+
			"this worker may create others in, subreaper, or auto for the first of them that works")
	flags.StringVar(&f.execUser, "exec-user", "",
		"uid:gid that programs run as; needs a worker that runs as root (default: the worker's own)")
	flags.BoolVar(&f.execAllowRoot, "exec-allow-root", false, "let programs run as root")
	f.execLimits = exechandler.DefaultLimits()
	l := &f.execLimits
	config.DurationVar(flags, &l.CPU, "exec-max-cpu", l.CPU, "CPU time of a program; 0 for no limit")
	flags.Int64Var(&l.Memory, "exec-max-memory", l.Memory, "address space of a program, in bytes; 0 for no limit")
	flags.IntVar(&l.Files, "exec-max-files", l.Files, "files that a program may have open; 0 for no limit")
	flags.IntVar(&l.Processes, "exec-max-processes", l.Processes,
		"processes and threads that the user of programs may have, all together, beside those of this worker and "+
			"its supervisors; 0 for no limit")
	flags.Int64Var(&l.FileSize, "exec-max-file-size", l.FileSize,
		"size of a file that a program writes, in bytes; 0 for no limit")
}

// warnOfUnread names the flags that are set and have no effect, for want of the handler
// that they are about. That is no fault: a file of values may serve several workers.
func (f *handlerFlags) warnOfUnread(flags *pflag.FlagSet, logger *slog.Logger) {
	flags.VisitAll(func(set *pflag.Flag) {
		if set.Value.String() == set.DefValue {
			return
		}
		switch {
		case len(f.execAllow) == 0 && strings.HasPrefix(set.Name, "exec-"):
			logger.Warn("flag has no effect", "flag", "--"+set.Name, "needs", "--exec-allow, which names programs")
		case !f.http && strings.HasPrefix(set.Name, "http-"):
			logger.Warn("flag has no effect", "flag", "--"+set.Name, "needs", "--http")
		}
	})
}

// containmentAuto leaves the choice to the handler.
const containmentAuto = "auto"

// buildHandlers makes the handlers by name, for so many attempts at once. It reports all faults.
// Programs should not be able to read the private files.
func (f *handlerFlags) buildHandlers(slots int, logger *slog.Logger, private ...string) (map[string]worker.Handler,
	error) {
	handlers := make(map[string]worker.Handler)
	var faults []error
	var kept *secrets.Dir
	if f.secretsDir != "" {
		var err error
		kept, err = secrets.Open(f.secretsDir)
		if err != nil {
			faults = append(faults, fmt.Errorf("--secrets-dir: %w", err))
		}
	}
	if f.http {
		o, err := f.httpOptions()
		if err != nil {
			faults = append(faults, err)
		}
		o.Secrets, o.Logger = kept, logger
		handlers["http"] = httphandler.New(o)
	}
	if len(f.execAllow) > 0 {
		o, err := f.execOptions()
		o.Secrets, o.Logger = kept, logger
		o.Slots = slots
		o.Private = slices.DeleteFunc(append(private, f.secretsDir), func(path string) bool { return path == "" })
		h, optionsErr := exechandler.New(o)
		if optionsErr != nil {
			err = errors.Join(err, fmt.Errorf("--exec flags: %w", optionsErr))
		}
		if err != nil {
			faults = append(faults, err)
		}
		handlers["exec"] = h
	}
	if len(handlers) == 0 {
		faults = append(faults, errors.New("no handler is enabled: give --http or --exec-allow"))
	}
	return handlers, errors.Join(faults...)
}

func (f *handlerFlags) httpOptions() (httphandler.Options, error) {
	o := httphandler.Options{Version: buildVersion, Ports: []uint16{}}
	var faults []error
	for _, text := range f.httpAllow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("--http-allow %q: want a network such as 10.0.0.0/8", text))
		}
		o.Allow = append(o.Allow, p)
	}
	for _, port := range f.httpPorts {
		if port < 1 || port > 65535 {
			faults = append(faults, fmt.Errorf("--http-ports %d: want 1 to 65535", port))
		}
		o.Ports = append(o.Ports, uint16(port))
	}
	return o, errors.Join(faults...)
}

func (f *handlerFlags) execOptions() (exechandler.Options, error) {
	o := exechandler.Options{
		Allow: f.execAllow, Env: f.execEnv, Dir: f.execDir, Home: f.execHome, AllowRoot: f.execAllowRoot,
		Limits: &f.execLimits, ReapOrphans: true,
	}
	if f.execContainment != containmentAuto {
		o.Containment = exechandler.Containment(f.execContainment)
	}
	if f.execUser == "" {
		return o, nil
	}
	uid, gid, both := strings.Cut(f.execUser, ":")
	u, uidErr := strconv.ParseUint(uid, 10, 32)
	g, gidErr := strconv.ParseUint(gid, 10, 32)
	if !both || uidErr != nil || gidErr != nil {
		return o, fmt.Errorf("--exec-user %q: want numbers such as 65534:65534", f.execUser)
	}
	o.User = &exechandler.User{UID: uint32(u), GID: uint32(g)}
	return o, nil
}
