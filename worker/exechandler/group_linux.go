package exechandler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// hunt bounds the search for processes that left the group.
const hunt = time.Second

// watch ends the group when ctx ends before its leader, and tells whether it did.
func (o Options) watch(ctx context.Context, group int, ended <-chan struct{}) (cut bool) {
	select {
	case <-ended:
		return false
	case <-ctx.Done():
	}
	// Between this look and the signal it may end by itself: its attempt is repeated
	// then, as one is whose result was lost.
	if hasEnded(group) {
		return false
	}
	signalGroup(group, unix.SIGTERM)
	grace := time.NewTimer(o.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		signalGroup(group, unix.SIGKILL)
	}
	return true
}

// hasEnded tells whether a child has ended, without reaping it.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
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

// killStrays ends the processes of an attempt that left its group, daemons for
// example, and returns those that it killed. They are known by the variables that they
// inherited. One that changed those goes on.
func killStrays(run string, token int64) map[int]string {
	marks := [][]byte{fmt.Appendf(nil, "\x00FERMATA_RUN=%s\x00", run), fmt.Appendf(nil, "\x00FERMATA_TOKEN=%d\x00", token)}
	killed := map[int]string{}
	for end := time.Now().Add(hunt); killMarked(marks, killed) && time.Now().Before(end); {
	}
	return killed
}

// killMarked tells whether there was one: it may have had children meanwhile.
func killMarked(marks [][]byte, killed map[int]string) (found bool) {
	for _, pid := range processes() {
		if killIfMarked(pid, marks, killed) {
			found = true
		}
	}
	return found
}

// processes are the numbers of all that can be seen.
func processes() []int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // what was read counts
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func killIfMarked(pid int, marks [][]byte, killed map[int]string) bool {
	if !marked(pid, marks) {
		return false
	}
	// The number may belong to another process by now; that which is held open does
	// not change.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	p, known := statOf(pid)
	if !marked(pid, marks) || unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
		return false
	}
	if known {
		killed[pid] = p.started
	}
	return true
}

func marked(pid int, marks [][]byte) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || len(environ) == 0 {
		return false
	}
	environ = append([]byte{0}, environ...)
	for _, m := range marks {
		if !bytes.Contains(environ, m) {
			return false
		}
	}
	return true
}
