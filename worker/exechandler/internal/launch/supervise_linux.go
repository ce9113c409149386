package launch

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

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
	runtime.GOMAXPROCS(1) // threads count against the limits of the user
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	// Who ends a service may signal all of its processes. The orders decide here. A
	// signal that is handled, unlike one that is ignored, is not ignored by the program.
	signal.Notify(make(chan os.Signal), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	s, err := start(p)
	if err != nil {
		fail(err)
	}
	detach()
	orders := make(chan byte)
	go readOrders(orders)
	s.await(children, orders)
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

// readOrders passes orders on, and closes the channel at their end.
func readOrders(to chan<- byte) {
	defer close(to)
	var order [1]byte
	for {
		n, err := unix.Read(ordersFile, order[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0:
			return
		default:
			to <- order[0]
		}
	}
}

// await returns when the program has ended, by itself or by orders, or when the orders
// have ended.
func (s *supervisor) await(children <-chan os.Signal, orders <-chan byte) {
	for {
		s.reap()
		if s.ended {
			return
		}
		select {
		case <-children:
		case order, more := <-orders:
			// What ended by then has not been ended by the order.
			s.reap()
			switch {
			case s.ended:
			case !more:
				s.kill()
				return
			case order == OrderTerminate:
				s.report.Terminated = true
				_ = unix.Kill(-s.program, unix.SIGTERM) // it has not been reaped
			}
		}
	}
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
