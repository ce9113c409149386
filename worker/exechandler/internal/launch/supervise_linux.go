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

// supervisor is the state of this process.
type supervisor struct {
	program    int // process id; also its process group
	ended      bool
	report     Report
	cgroupKill int // file descriptor; -1: none
	cgroup     string
}

// runSupervisor starts the program, waits until it and all its descendants have ended, and ends this process.
func runSupervisor(p Program) {
	// A service manager may signal all processes of a service. Only orders end the program here. The program
	// does not inherit the ignored signals.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	s, err := startSupervised(p)
	if err != nil {
		reportFailure(err)
	}
	closeStandardFiles()
	s.awaitEnd()
	s.killDescendants()
	s.removeCgroup()
	exitProcess()
}

// exitProcess skips what the runtime does at an exit: nothing is left to flush, and the race
// detector would sleep for a second.
func exitProcess() { syscall.Exit(0) }

// startSupervised makes this process adopt orphans, and starts the program.
func startSupervised(p Program) (*supervisor, error) {
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

// restoreFileLimit restores the soft limit of open files, which Go raised at the start of this process. Package
// syscall restores it only before it executes a program; this execution fails.
func restoreFileLimit() { _ = syscall.Exec("", []string{""}, nil) }

// keepFiles marks all files but the standard ones close-on-exec, also inherited ones. Files opened later have
// the flag from the start.
func keepFiles() error {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	// Kernels before 5.11 and some sandboxes do not support it.
	files, err := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		if number, err := strconv.Atoi(f.Name()); err == nil && number > 2 {
			unix.CloseOnExec(number)
		}
	}
	return err
}

// closeStandardFiles closes this process's copies of the program's standard files, so that their readers see the
// end.
func closeStandardFiles() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	for file := range 3 {
		if err == nil {
			_ = unix.Dup3(null, file, unix.O_CLOEXEC)
		} else {
			_ = unix.Close(file)
		}
	}
}

// awaitEnd returns when the program has ended, by itself or by order, or when the order pipe is closed. It uses
// no other goroutine, because threads count against the user's limits.
func (s *supervisor) awaitEnd() {
	pidfd, err := unix.PidfdOpen(s.program, 0)
	pause := maxWait
	if err != nil {
		pidfd, pause = -1, waitWithoutPidfd // some sandboxes refuse it
	}
	for {
		// The end of any child interrupts the wait, unless it comes just before.
		files := []unix.PollFd{{Fd: ordersFile, Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}}
		_, err := unix.Poll(files, int(pause.Milliseconds()))
		// A program that has ended by now was not ended by an order.
		s.reapEnded()
		switch {
		case s.ended:
			return
		case err == nil && files[1].Revents != 0:
			return // it has ended, and its tracer keeps its status from this process
		case err != nil || files[0].Revents == 0:
		case !s.readOrder():
			_ = unix.Kill(-s.program, unix.SIGKILL) // it has not been reaped
			return
		}
	}
}

const (
	maxWait          = time.Second
	waitWithoutPidfd = 20 * time.Millisecond
)

// readOrder executes an order. It returns false at the end of the pipe.
func (s *supervisor) readOrder() bool {
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

// reapEnded reaps all ended children: the program and its orphans.
func (s *supervisor) reapEnded() {
	for {
		pid, status, ok := waitChild(-1, unix.WNOHANG)
		if !ok || pid == 0 {
			return
		}
		s.recordStatus(pid, status)
	}
}

// recordStatus handles the status of a child and reports the end of the program. It returns false for a stopped
// child, one that asked its parent to trace it. That child is detached with the signal that stopped it.
func (s *supervisor) recordStatus(pid int, status syscall.WaitStatus) (ended bool) {
	if !status.Exited() && !status.Signaled() {
		detachTraced(pid, status)
		return false
	}
	if pid == s.program && !s.ended {
		s.ended, s.report.Status = true, status
		writeReport(s.report)
	}
	return true
}

// detachTraced stops tracing a child. The trap by which a traced child reports execve is not passed on.
func detachTraced(pid int, status syscall.WaitStatus) {
	var sig syscall.Signal
	if status.Stopped() && status.StopSignal() != unix.SIGTRAP {
		sig = status.StopSignal()
	}
	if _, _, err := syscall.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(sig), 0,
		0); err != 0 {
		_ = unix.Kill(pid, unix.SIGKILL) // no other process could continue it
	}
}

// waitChild reaps one child. ok is false if no child is left; ended is 0 if none has ended.
func waitChild(pid, options int) (ended int, status syscall.WaitStatus, ok bool) {
	for {
		ended, err := syscall.Wait4(pid, &status, options|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return ended, status, err == nil
		}
	}
}
