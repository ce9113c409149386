package exechandler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/worker"
)

// New makes a handler. The error tells what is wrong with the options.
func New(o Options) (worker.Handler, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return o.handle, nil
}

// report is the output of an attempt.
type report struct {
	ExitCode   int    `json:"exit_code"`
	Signal     string `json:"signal,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Bytes      int64  `json:"bytes"`
	Output     string `json:"output"`
}

func (o Options) handle(ctx context.Context, t *worker.Task) error {
	p, err := parse(t.Payload)
	if err != nil {
		return err
	}
	if !slices.Contains(o.Allow, p.Argv[0]) {
		return fmt.Errorf("program %.200q is not allowed on this worker", p.Argv[0])
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var written tail
	cmd := &exec.Cmd{
		Path: p.Argv[0], Args: p.Argv, Dir: p.Dir, Env: o.environment(p, t),
		Stdin: strings.NewReader(p.Stdin), Stdout: &written, Stderr: &written,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		// Once the program has ended, its pipes have this long.
		WaitDelay: o.Grace,
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	err = o.wait(ctx, cmd)
	t.SetOutput(encode(cmd.ProcessState, &written, time.Since(start)))
	return err
}

// wait sees the program and its group to their end.
func (o Options) wait(ctx context.Context, cmd *exec.Cmd) error {
	group := cmd.Process.Pid
	ended := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { o.watch(ctx, group, ended) })
	// Until the leader is reaped, the group's number is its own: nothing else can
	// be hit.
	awaitLeader(group)
	close(ended)
	watcher.Wait()
	signalGroup(group, unix.SIGKILL)
	err := cmd.Wait()
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return fmt.Errorf("%w; the program ended with %w", cause, err)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return errors.New("the program ended and left a process that holds its output open")
	}
	return err
}

// watch ends the group when ctx ends before its leader.
func (o Options) watch(ctx context.Context, group int, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	signalGroup(group, unix.SIGTERM)
	grace := time.NewTimer(o.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		signalGroup(group, unix.SIGKILL)
	}
}

// awaitLeader returns when the process has ended, without reaping it.
func awaitLeader(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func signalGroup(group int, s unix.Signal) {
	// The group may have ended: that is what is wanted.
	_ = unix.Kill(-group, s)
}

func (o Options) environment(p *payload, t *worker.Task) []string {
	env := []string{
		"PATH=" + o.Path,
		"FERMATA_RUN=" + t.Run,
		"FERMATA_NAMESPACE=" + t.Namespace,
		"FERMATA_JOB=" + t.Job,
		"FERMATA_ATTEMPT=" + strconv.Itoa(t.Attempt),
		"FERMATA_TOKEN=" + strconv.FormatInt(t.Token, 10),
		"FERMATA_CORRELATION_ID=" + t.CorrelationID,
	}
	for name, value := range p.Env {
		env = append(env, name+"="+value)
	}
	return env
}

func encode(state *os.ProcessState, written *tail, took time.Duration) []byte {
	r := report{DurationMS: took.Milliseconds(), Bytes: written.total, Output: worker.Excerpt(written.last(), MaxExcerpt)}
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
