//go:build amd64 || arm64

package exechandler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"
	"github.com/fermata-io/fermata/worker/secrets"
)

type handler struct {
	Options
	processes   processLimit
	programs    allowedPrograms
	variables   allowedVariables
	containment containment
}

// New returns a handler, or an error that describes the invalid options.
func New(o Options) (worker.Handler, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.checkUser(os.Geteuid()); err != nil {
		return nil, err
	}
	h := handler{Options: o}
	h.variables, err = allowVariables(o.Env, o.Logger)
	if err != nil {
		return nil, err
	}
	h.programs, err = resolveAllowed(o.Allow)
	if err != nil {
		return nil, err
	}
	if o.ReapOrphans {
		ownChildren.noteInherited()
	}
	h.containment, err = o.chooseContainment()
	if err != nil {
		return nil, err
	}
	if err := o.checkSignals(); err != nil {
		return nil, err
	}
	if o.ReapOrphans {
		// The children of a killed supervisor become children of this process.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("exec handler: become the reaper of orphans: %w", err)
		}
	}
	h.processes = o.limitProcesses(os.Geteuid(), hardProcessLimit())
	o.warnOfFewProcesses(h.processes)
	o.warnOfReadable()
	return h.handle, nil
}

// programUser returns the user id of programs.
func (o Options) programUser(euid int) uint32 {
	if o.User != nil {
		return o.User.UID
	}
	return uint32(euid)
}

func (o Options) checkUser(euid int) error {
	as := o.programUser(euid)
	switch {
	case as == 0 && !o.AllowRoot:
		return errors.New("exec handler: programs would run as root: --exec-user names another user, " +
			"--exec-allow-root allows it")
	case as != uint32(euid) && euid != 0:
		return fmt.Errorf("exec handler: only root can run programs as user %d", as)
	}
	return nil
}

// checkSignals rejects programs that this process could not kill.
func (o Options) checkSignals() error {
	if o.User == nil || o.User.UID == uint32(os.Geteuid()) {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("exec handler: read the worker's capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_KILL) == 0 {
		return fmt.Errorf("exec handler: programs of user %d could not be ended: the worker needs the capability "+
			"KILL for it", o.User.UID)
	}
	return nil
}

// unknownStatus is neither an exit nor a signal.
const unknownStatus = ^syscall.WaitStatus(0)

// report is the output of an attempt.
type report struct {
	ExitCode   int    `json:"exit_code"`
	Signal     string `json:"signal,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Bytes      int64  `json:"bytes"`
	Output     string `json:"output"`
}

func (h handler) handle(ctx context.Context, t *worker.Task) error {
	p, err := payload.ParseExec(t.Payload)
	if err != nil {
		return worker.Permanent(err) // the same at each attempt
	}
	use := h.Secrets.For(p.Argv[0])
	return use.MaskError(h.runProgram(ctx, t, p, use))
}

func (h handler) runProgram(ctx context.Context, t *worker.Task, p *payload.Exec, use *secrets.Resolver) error {
	if err := h.variables.checkNames(p.Env); err != nil {
		return worker.Permanent(fmt.Errorf("payload: env: %w", err))
	}
	file, err := h.programs.findFile(p.Argv[0])
	if err != nil {
		return err
	}
	dir, err := workingDirectory(h.Dir, p.Dir)
	if err != nil {
		return err
	}
	if err := expandSecrets(p, use); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	written := tailBuffer{limit: tailLimit(use.Margin())}
	start := time.Now()
	s, err := h.startProgram(file, dir, p, t, traceVariables(ctx), &written)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	r, err := h.awaitProgram(ctx, s)
	if r.Failure != "" {
		return err
	}
	t.SetOutput(encodeReport(r, &written, use, time.Since(start)))
	return err
}

// startProgram starts the program under its own supervisor.
func (h handler) startProgram(file, dir string, p *payload.Exec, t *worker.Task, traced []string,
	written io.Writer) (*supervisor, error) {
	cgroup, err := h.containment.newCgroup()
	if err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	l := h.Limits
	program := launch.Program{
		Path: file, Argv: p.Argv, Dir: dir, Cgroup: cgroup,
		Limits: launch.Limits{
			CPU: uint64((l.CPU + time.Second - 1) / time.Second), Memory: uint64(l.Memory), Files: uint64(l.Files),
			Processes: h.processes.limit, FileSize: uint64(l.FileSize),
		},
	}
	if h.User != nil {
		// Only root may set groups, and only root has a reason to.
		program.User = &launch.User{UID: h.User.UID, GID: h.User.GID, SetGroups: os.Geteuid() == 0}
	}
	path, args := launch.SupervisorCommand(program)
	s, err := startSupervisor(&exec.Cmd{
		Path: path, Args: args, Dir: "/", Env: launch.Environment(h.programEnvironment(p, t, traced)),
		Stdin: strings.NewReader(p.Stdin), Stdout: written, Stderr: written,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		// How long the program's pipes may stay open after the supervisor has ended.
		WaitDelay: h.Grace,
	}, cgroup)
	if err != nil && cgroup != "" {
		err = errors.Join(err, launch.RemoveCgroup(cgroup))
	}
	return s, err
}

// awaitProgram waits until the program and all its descendants have ended.
func (h handler) awaitProgram(ctx context.Context, s *supervisor) (launch.Report, error) {
	r, reported := s.awaitReport(ctx, h.Grace)
	if !reported {
		r.Status = unknownStatus
	}
	err := s.awaitEmpty()
	if h.ReapOrphans && err != nil && !ownChildren.killOrphans() {
		err = errors.Join(err, errProcessesLeft)
	}
	if h.ReapOrphans {
		ownChildren.reapOrphans()
	}
	return r, attemptError(ctx, r, reported, err)
}

// attemptError returns the error of an attempt, nil for success. end is the error of ending the processes.
func attemptError(ctx context.Context, r launch.Report, reported bool, end error) error {
	cause := context.Cause(ctx)
	switch {
	case !reported && cause != nil:
		return fmt.Errorf("%w; %w", cause, errNoReport)
	case !reported:
		return fmt.Errorf("%w: %w", errNoReport, end)
	case r.Failure != "":
		return errors.New("start: " + r.Failure)
	case errors.Is(end, exec.ErrWaitDelay):
		end = errors.New("the program has ended and left a process that holds its output open")
	}
	status := exitError(r.Status)
	switch {
	case r.Terminated && status == 0:
		// Many programs exit with 0 after SIGTERM, with their work undone.
		return fmt.Errorf("%w; the program ended with status 0", cause)
	case r.Terminated:
		return fmt.Errorf("%w; the program ended with %w", cause, status)
	case status != 0:
		return status
	}
	return end
}

// exitError is the wait status of a program that failed.
type exitError syscall.WaitStatus

func (e exitError) Error() string {
	w := syscall.WaitStatus(e)
	if w.Signaled() {
		return "signal: " + w.Signal().String()
	}
	return "exit status " + strconv.Itoa(w.ExitStatus())
}

func (h handler) programEnvironment(p *payload.Exec, t *worker.Task, traced []string) []string {
	env := append([]string{
		"PATH=" + h.Path,
		"HOME=" + h.Home,
		"LANG=C.UTF-8",
		"FERMATA_RUN=" + t.Run,
		"FERMATA_NAMESPACE=" + t.Namespace,
		"FERMATA_JOB=" + t.Job,
		"FERMATA_ATTEMPT=" + strconv.Itoa(t.Attempt),
		"FERMATA_TOKEN=" + strconv.FormatInt(t.Token, 10),
		"FERMATA_CORRELATION_ID=" + t.CorrelationID,
	}, traced...)
	for name, value := range p.Env {
		env = append(env, name+"="+value)
	}
	return env
}

func encodeReport(end launch.Report, written *tailBuffer, use *secrets.Resolver, took time.Duration) []byte {
	last, total := written.lastBytes()
	shown := use.MaskEnd(last, excerptLength(last), total > int64(len(last)))
	r := report{DurationMS: took.Milliseconds(), Bytes: total, Output: worker.Excerpt(shown, MaxExcerpt),
		ExitCode: end.Status.ExitStatus()}
	if end.Status.Signaled() {
		r.Signal = unix.SignalName(end.Status.Signal())
	}
	// Numbers and valid text always encode.
	b, _ := json.Marshal(r)
	return b
}
