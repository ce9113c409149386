package exechandler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"
	"github.com/fermata-io/fermata/worker/secrets"
)

type handler struct {
	Options
	programs programs
}

// New makes a handler. The error tells what is wrong with the options.
func New(o Options) (worker.Handler, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.checkUser(os.Geteuid()); err != nil {
		return nil, err
	}
	p, err := pin(o.Allow)
	if err != nil {
		return nil, err
	}
	return handler{o, p}.handle, nil
}

func (o Options) checkUser(euid int) error {
	as := uint32(euid)
	if o.User != nil {
		as = o.User.UID
	}
	switch {
	case as == 0 && !o.AllowRoot:
		return errors.New("exec handler: programs would run as root; name another user, or allow root")
	case as != uint32(euid) && euid != 0:
		return fmt.Errorf("exec handler: only root can run programs as user %d", as)
	}
	return nil
}

// report is the output of an attempt.
type report struct {
	ExitCode   int    `json:"exit_code"`
	Signal     string `json:"signal,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Bytes      int64  `json:"bytes"`
	Output     string `json:"output"`
}

func (h handler) handle(ctx context.Context, t *worker.Task) error {
	p, err := parse(t.Payload)
	if err != nil {
		return err
	}
	use := h.Secrets.For(p.Argv[0])
	return use.HideError(h.attempt(ctx, t, p, use))
}

func (h handler) attempt(ctx context.Context, t *worker.Task, p *payload, use *secrets.Use) error {
	file, err := h.programs.find(p.Argv[0])
	if err != nil {
		return err
	}
	dir, err := directory(h.Dir, p.Dir)
	if err != nil {
		return err
	}
	if err := p.expand(use); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var written tail
	cmd := h.command(file, dir, p, t, traceOf(ctx))
	cmd.Stdout, cmd.Stderr = &written, &written
	start := time.Now()
	// The kernel kills the program if the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := own.start(cmd); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	err = h.wait(ctx, cmd, t)
	t.SetOutput(encode(cmd.ProcessState, &written, use, time.Since(start)))
	return err
}

func (h handler) command(file, dir string, p *payload, t *worker.Task, traced []string) *exec.Cmd {
	l := h.Limits
	program, args := launch.Command(launch.Limits{
		CPU: uint64((l.CPU + time.Second - 1) / time.Second), Memory: uint64(l.Memory), Files: uint64(l.Files),
		Processes: uint64(l.Processes), FileSize: uint64(l.FileSize),
	}, file, p.Argv)
	attributes := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if h.User != nil {
		// Only root may set groups, and only root has a reason to.
		attributes.Credential = &syscall.Credential{Uid: h.User.UID, Gid: h.User.GID, NoSetGroups: os.Geteuid() != 0}
	}
	return &exec.Cmd{
		Path: program, Args: args, Dir: dir, Env: h.environment(dir, p, t, traced), Stdin: strings.NewReader(p.Stdin), SysProcAttr: attributes,
		// Once the program has ended, its pipes have this long.
		WaitDelay: h.Grace,
	}
}

// wait sees the program and its group to their end.
func (h handler) wait(ctx context.Context, cmd *exec.Cmd, t *worker.Task) error {
	group := cmd.Process.Pid
	ended := make(chan struct{})
	var watcher sync.WaitGroup
	cut := false
	watcher.Go(func() { cut = h.watch(ctx, group, ended) })
	// Until the leader is reaped, the group's number is its own: nothing else can
	// be hit.
	awaitLeader(group)
	close(ended)
	watcher.Wait()
	signalGroup(group, unix.SIGKILL)
	strays := killStrays(t.Run, t.Token)
	orphans := reaps()
	if orphans {
		bury(group, strays)
	}
	err := own.wait(cmd)
	if orphans && h.Init {
		own.reapOthers()
	}
	switch {
	case cut && err == nil:
		// Many programs end so when they are told to: the work is not done.
		return fmt.Errorf("%w; the program ended with status 0", context.Cause(ctx))
	case cut:
		return fmt.Errorf("%w; the program ended with %w", context.Cause(ctx), err)
	case errors.Is(err, exec.ErrWaitDelay):
		return errors.New("the program ended and left a process that holds its output open")
	}
	return err
}

func (h handler) environment(dir string, p *payload, t *worker.Task, traced []string) []string {
	env := append([]string{
		"PATH=" + h.Path,
		"HOME=" + dir,
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

func encode(state *os.ProcessState, written *tail, use *secrets.Use, took time.Duration) []byte {
	r := report{DurationMS: took.Milliseconds(), Bytes: written.total, Output: worker.Excerpt(use.Hide(written.last()), MaxExcerpt)}
	if state != nil {
		r.ExitCode = state.ExitCode()
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			r.Signal = unix.SignalName(status.Signal())
		}
	}
	// Numbers and valid text always encode.
	b, _ := json.Marshal(r)
	return b
}
