//go:build amd64 || arm64

package exechandler

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"
)

// maxKillWait bounds the wait for killed processes to end.
const maxKillWait = 10 * time.Second

// supervisor is the process of one attempt that starts the program and ends all its descendants.
type supervisor struct {
	cmd *exec.Cmd
	// orderPipe reaches its end when it is closed and when this process is killed.
	orderPipe *os.File
	// report is closed when the supervisor has ended, after all processes of the attempt. A killed supervisor
	// sends no report.
	report <-chan launch.Report
	cgroup string
}

func startSupervisor(cmd *exec.Cmd, cgroup string) (*supervisor, error) {
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirOrders.Close()
	reports, theirReports, err := os.Pipe()
	if err != nil {
		orders.Close()
		return nil, err
	}
	defer theirReports.Close()
	cmd.ExtraFiles = []*os.File{theirOrders, theirReports}
	if err := ownChildren.startSupervisor(cmd); err != nil {
		orders.Close()
		reports.Close()
		return nil, err
	}
	to := make(chan launch.Report, 1)
	go readReport(reports, to)
	return &supervisor{cmd: cmd, orderPipe: orders, report: to, cgroup: cgroup}, nil
}

func readReport(from io.ReadCloser, to chan<- launch.Report) {
	defer from.Close()
	defer close(to)
	lines := bufio.NewReader(from)
	line, err := lines.ReadString('\n')
	if err != nil {
		return // it was killed
	}
	if r, err := launch.ParseReport(line); err == nil {
		to <- r
	}
	_, _ = io.Copy(io.Discard, lines) // it is over when the pipe ends
}

// awaitReport returns how the program ended. If ctx ends first, the program gets SIGTERM, and SIGKILL after
// grace. It returns false if the supervisor ended without a report.
func (s *supervisor) awaitReport(ctx context.Context, grace time.Duration) (launch.Report, bool) {
	select {
	case r, ok := <-s.report:
		return r, ok
	case <-ctx.Done():
	}
	_, _ = s.orderPipe.Write([]byte{launch.OrderTerminate}) // it may have ended
	if r, ok, came := s.reportWithin(grace); came {
		return r, ok
	}
	s.orderPipe.Close()
	if r, ok, came := s.reportWithin(maxKillWait); came {
		return r, ok
	}
	// A program of the same user has stopped the supervisor.
	_ = s.cmd.Process.Kill()
	r, ok := <-s.report
	return r, ok
}

func (s *supervisor) reportWithin(d time.Duration) (r launch.Report, ok, came bool) {
	bound := time.NewTimer(d)
	defer bound.Stop()
	select {
	case r, ok = <-s.report:
		return r, ok, true
	case <-bound.C:
		return r, false, false
	}
}

var (
	errProcessesLeft = fmt.Errorf("the program has ended and left processes that did not end within %v of being "+
		"killed", maxKillWait)
	errNoReport = errors.New("the program's supervisor was killed")
)

// awaitEmpty returns when no process of the attempt is left, or an error if there may be one.
func (s *supervisor) awaitEmpty() error {
	bound := time.NewTimer(maxKillWait)
	defer bound.Stop()
	left := false
	for open := true; open; {
		select {
		case _, open = <-s.report:
		case <-bound.C:
			open, left = false, true
		}
	}
	s.orderPipe.Close()
	if left {
		go s.reapAndClean() // continue in the background: processes that cannot be killed now may end later
		return errProcessesLeft
	}
	return s.reapAndClean()
}

// reapAndClean reaps the supervisor and removes its control group.
func (s *supervisor) reapAndClean() error {
	err := ownChildren.awaitSupervisor(s.cmd)
	if s.cgroup != "" {
		err = errors.Join(err, launch.RemoveCgroup(s.cgroup))
	}
	return err
}
