package launch

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
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
	send(s.report)
	s.killDescendants()
	s.removeCgroup()
	os.Exit(0)
}

// start makes this process the one to which orphans come, and starts the program.
func start(p Program) (*supervisor, error) {
	unix.CloseOnExec(ordersFile)
	unix.CloseOnExec(reportsFile)
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
		if cgroup, err = unix.Open(p.Cgroup, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("control group: %w", err)
		}
		defer unix.Close(cgroup)
		if s.cgroupKill, err = unix.Open(p.Cgroup+"/cgroup.kill", unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("control group: %w", err)
		}
	}
	var err error
	s.program, err = startProgram(p, cgroup)
	return s, err
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
		case err != nil || files[0].Revents == 0:
		case !s.takeOrder():
			s.kill()
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

// kill ends the program, which has not been reaped.
func (s *supervisor) kill() {
	_ = unix.Kill(-s.program, unix.SIGKILL)
	for !s.ended {
		pid, status, ok := waitChild(s.program, 0)
		if !ok {
			return
		}
		s.note(pid, status)
	}
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

func (s *supervisor) note(pid int, status syscall.WaitStatus) {
	if pid == s.program && !s.ended {
		s.ended, s.report.Status = true, status
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
