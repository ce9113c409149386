//go:build amd64 || arm64

package launch

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervisor is this process.
type supervisor struct {
	program    int // process id; also its process group
	ended      bool
	report     Report
	cgroupKill int // file descriptor; -1: none
	cgroup     string
}

// supervise starts the program, sees it and all that comes from it to their end, and
// ends this process.
func supervise(p Program) {
	// Who ends a service may signal all of its processes. The orders decide here. The
	// program does not inherit this.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	s, err := start(p)
	if err != nil {
		fail(err)
	}
	detach()
	s.await()
	s.killDescendants()
	s.removeCgroup()
	exitProcess()
}

// exitProcess skips what the runtime does at an exit: nothing is left to flush, and the race
// detector would sleep for a second.
func exitProcess() { syscall.Exit(0) }

// start makes this process the one to which orphans come, and starts the program.
func start(p Program) (*supervisor, error) {
	if err := keepFiles(); err != nil {
		return nil, fmt.Errorf("keep files from the program: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	// Programs of the same user may not trace this process or read its memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("forbid tracing: %w", err)
	}
	s := &supervisor{cgroupKill: -1, cgroup: p.Cgroup}
	cgroup := -1
	if p.Cgroup != "" {
		var err error
		cgroup, err = unix.Open(p.Cgroup, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("control group: %w", err)
		}
		defer unix.Close(cgroup)
		if s.cgroupKill, err = unix.Open(p.Cgroup+"/cgroup.kill", unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("control group: %w", err)
		}
	}
	if p.Limits.Files == 0 {
		restoreFileLimit()
	}
	var err error
	s.program, err = startProgram(p, cgroup)
	return s, err
}

// restoreFileLimit takes back that Go raised the soft limit of open files at the start of
// this process. Package syscall does so before it executes a program, and only then: this
// execution fails.
func restoreFileLimit() { _ = syscall.Exec("", []string{""}, nil) }

// keepFiles keeps all files but the standard ones from the program, also those that this
// process inherited. Files that it opens later have the flag from the start.
func keepFiles() error {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	// Kernels before 5.11 and some sandboxes do not know it.
	files, err := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		if number, err := strconv.Atoi(f.Name()); err == nil && number > 2 {
			unix.CloseOnExec(number)
		}
	}
	return err
}

// detach lets go of the program's standard files: who reads them is to see their end.
func detach() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	for file := range 3 {
		if err == nil {
			_ = unix.Dup3(null, file, unix.O_CLOEXEC)
		} else {
			_ = unix.Close(file)
		}
	}
}

// await returns when the program has ended, by itself or by orders, or when the orders
// have ended. There is no other goroutine: threads count against the limits of the user.
func (s *supervisor) await() {
	pidfd, err := unix.PidfdOpen(s.program, 0)
	pause := longestWait
	if err != nil {
		pidfd, pause = -1, waitWithoutPidfd // some sandboxes refuse it
	}
	for {
		// The end of any child interrupts the wait, unless it comes just before.
		files := []unix.PollFd{{Fd: ordersFile, Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}}
		_, err := unix.Poll(files, int(pause.Milliseconds()))
		// What has ended by now has not been ended by an order.
		s.reap()
		switch {
		case s.ended:
			return
		case err == nil && files[1].Revents != 0:
			return // it has ended, and a process that traces it keeps its status from this one
		case err != nil || files[0].Revents == 0:
		case !s.takeOrder():
			_ = unix.Kill(-s.program, unix.SIGKILL) // it has not been reaped
			return
		}
	}
}

const (
	longestWait      = time.Second
	waitWithoutPidfd = 20 * time.Millisecond
)

// takeOrder is false at the end of the orders.
func (s *supervisor) takeOrder() bool {
	var order [1]byte
	n, err := unix.Read(ordersFile, order[:])
	switch {
	case errors.Is(err, unix.EINTR):
		return true
	case err != nil || n == 0:
		return false
	}
	if order[0] == OrderTerminate {
		s.report.Terminated = true
		_ = unix.Kill(-s.program, unix.SIGTERM) // it has not been reaped
	}
	return true
}

// reap takes in all children that have ended: the program, and orphans of it.
func (s *supervisor) reap() {
	for {
		pid, status, ok := waitChild(-1, unix.WNOHANG)
		if !ok || pid == 0 {
			return
		}
		s.note(pid, status)
	}
}

// note takes in what was reported of a child, and reports the end of the program. It is false
// for a child that has stopped: one that asked to be traced by its parent. That one is let
// go, with the signal that stopped it.
func (s *supervisor) note(pid int, status syscall.WaitStatus) (ended bool) {
	if !status.Exited() && !status.Signaled() {
		release(pid, status)
		return false
	}
	if pid == s.program && !s.ended {
		s.ended, s.report.Status = true, status
		send(s.report)
	}
	return true
}

// release stops to trace a child. The trap by which a traced child reports execve is not a
// signal to it.
func release(pid int, status syscall.WaitStatus) {
	var sig syscall.Signal
	if status.Stopped() && status.StopSignal() != unix.SIGTRAP {
		sig = status.StopSignal()
	}
	if _, _, err := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(sig), 0,
		0); err != 0 {
		_ = unix.Kill(pid, unix.SIGKILL) // nobody else could let it go on
	}
}

// waitChild reaps one child. No child is left if it is not ok; none has ended if the
// number is 0.
func waitChild(pid, options int) (ended int, status syscall.WaitStatus, ok bool) {
	for {
		ended, err := syscall.Wait4(pid, &status, options|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return ended, status, err == nil
		}
	}
}
