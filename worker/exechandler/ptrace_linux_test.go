//go:build amd64 || arm64

package exechandler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/worker"
)

// leaveTracer ends with status 7, and leaves a daemon that traces this process and does not let
// anybody else know of its end.
func leaveTracer(mode string) {
	if os.Getenv("TRACER") == "" {
		_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0) // some kernels do not know it, and need none
		daemon := exec.Command("/proc/self/exe", mode)
		daemon.Env, daemon.SysProcAttr = append(os.Environ(), "TRACER=1"), &syscall.SysProcAttr{Setsid: true}
		ready, err := daemon.StdoutPipe()
		if err != nil || daemon.Start() != nil {
			syscall.Exit(1)
		}
		if n, _ := ready.Read(make([]byte, 1)); n != 1 {
			syscall.Exit(1)
		}
		syscall.Exit(7)
	}
	runtime.LockOSThread()
	options := uintptr(0)
	if mode == tracedExitMode {
		options = unix.PTRACE_O_TRACEEXIT
	}
	if _, _, err := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(os.Getppid()), 0, options, 0, 0); err != 0 {
		syscall.Exit(1)
	}
	os.Stdout.Write([]byte("."))
	for file := range 3 {
		_ = unix.Close(file)
	}
	for {
		_ = unix.Pause()
	}
}

// TestTracedProgramEnds: a daemon of the program traces it, so that the kernel shows the
// program's end to the daemon alone.
func TestTracedProgramEnds(t *testing.T) {
	program := testProgram(t)
	for _, by := range mechanisms(t) {
		h := newHandler(t, Options{Allow: []string{program}, Containment: by})
		if err := h(t.Context(), task(payload.Exec{Argv: []string{program, tracedMode}})); err == nil || err.Error() != "exit status 7" {
			t.Errorf("%s: got %v", by, err)
		}
		if left := processesOf(program); len(left) > 0 {
			t.Errorf("%s: processes %v are left", by, left)
		}
	}
}

// TestProgramStoppedAtItsExitEnds: the daemon does not even let it end. No process is waited
// for alone when the attempt is over.
func TestProgramStoppedAtItsExitEnds(t *testing.T) {
	program := testProgram(t)
	for _, by := range mechanisms(t) {
		h := newHandler(t, Options{Allow: []string{program}, Containment: by, Grace: 50 * time.Millisecond})
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- h(ctx, task(payload.Exec{Argv: []string{program, tracedExitMode}})) }()
		redistest.Eventually(t, patience, "the daemon has stopped the program at its exit", func() bool {
			return slices.ContainsFunc(processesOf(program), func(pid int) bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return err == nil && bytes.Contains(stat, []byte(") t "))
			})
		})
		cancel(worker.ErrTimeout)
		if err := <-done; !errors.Is(err, worker.ErrTimeout) || errors.Is(err, errNoReport) {
			t.Errorf("%s: got %v", by, err)
		}
		if left := processesOf(program); len(left) > 0 {
			t.Errorf("%s: processes %v are left", by, left)
		}
	}
}

// Initialization is on the first thread, whose number is that of the process.
func init() {
	if len(os.Args) != 2 || os.Args[1] != traceMeMode {
		return
	}
	traceMe := func() {
		if _, _, err := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0, 0, 0); err != 0 {
			syscall.Exit(1)
		}
	}
	traceMe()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGCHLD)
	traceMe() // the parent has let it go
	_ = syscall.Exec("/bin/sh", []string{"sh", "-c", "echo goes on; exit 4"}, nil)
	syscall.Exit(1)
}

// TestStoppedProgramHasNotEnded: a program that asks to be traced by its parent stops at a signal, and
// when it executes another one.
func TestStoppedProgramHasNotEnded(t *testing.T) {
	program := testProgram(t)
	one := task(payload.Exec{Argv: []string{program, traceMeMode}})
	if err := newHandler(t, Options{Allow: []string{program}})(t.Context(), one); err == nil || err.Error() != "exit status 4" {
		t.Errorf("got %v", err)
	}
	if got := outputOf(t, one).Output; got != "goes on\n" {
		t.Errorf("wrote %q", got)
	}
}
