// Package proc runs the processes of a benchmark and measures their processor time.
//
// A process ends with the benchmark, however the benchmark ends.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to end when it is asked to.
const stopTimeout = 15 * time.Second

// ticks is what /proc/<pid>/stat counts in a second (USER_HZ, 100 on Linux).
const ticks = 100

// Spec is a process to be started.
type Spec struct {
	Name string // for messages
	Path string
	Args []string
	Env  []string // added to this process's
	Log  string   // file for its stderr, and for its stdout unless Pipes is set
	// Pipes connects Stdin and Stdout of the Process.
	Pipes bool
}

// Process is a child.
type Process struct {
	Name   string
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	cmd    *exec.Cmd
	log    string
	done   chan struct{} // closed when it has been waited for
	err    error         // of Wait; read after done
}

// Start starts a process. The kernel kills it when the thread that forked it ends,
// so that thread is kept.
func Start(s Spec) (*Process, error) {
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &Process{Name: s.Name, cmd: cmd, log: s.Log, done: make(chan struct{})}
	if s.Pipes {
		if err := p.pipes(); err != nil {
			return nil, err
		}
	} else {
		cmd.Stdout = log
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			// Not cmd.Wait, which would close Stdout before it has been read.
			state, err := cmd.Process.Wait()
			if err == nil && !state.Success() {
				err = errors.New(state.String())
			}
			p.err = err
			cmd.ProcessState = state
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	return p, nil
}

func (p *Process) pipes() error {
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.Stdin, p.Stdout = in, out
	return nil
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Failed is an error with the end of its log when the process has ended.
func (p *Process) Failed() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %v\n%s", p.Name, p.err, p.Tail())
	default:
		return nil
	}
}

// Tail is the end of its log.
func (p *Process) Tail() string {
	const size = 4 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-size):])
}

// Signal sends a signal to a process that still runs.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process at once and waits for its end.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // fails only when it has ended
	<-p.done
}

// Stop asks the process to end, and kills it when it does not. It may be repeated.
func (p *Process) Stop() {
	if p == nil {
		return
	}
	if p.Stdin != nil {
		_ = p.Stdin.Close()
	}
	_ = p.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.Kill()
	}
}

// CPU is the user and system time of all its threads so far, to 10 ms; zero when
// the process has ended.
func (p *Process) CPU() time.Duration {
	fields := p.stat()
	if len(fields) < 15 {
		return 0
	}
	// Fields 14 and 15 of proc(5); the state, field 3, is the first here.
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * (time.Second / ticks)
}

// stat are the fields of /proc/<pid>/stat behind the command's name.
func (p *Process) stat() []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return nil
	}
	text = text[bytes.LastIndexByte(text, ')')+1:]
	var out []string
	for _, f := range bytes.Fields(text) {
		out = append(out, string(f))
	}
	return out
}

// RSS is its resident memory in bytes; zero when the process has ended.
func (p *Process) RSS() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
