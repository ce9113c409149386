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

// killStrays ends the processes of an attempt that left its group, daemons for
// example. They are known by the variables that they inherited. One that changed
// those goes on.
func killStrays(run string, token int64) {
	marks := [][]byte{fmt.Appendf(nil, "\x00FERMATA_RUN=%s\x00", run), fmt.Appendf(nil, "\x00FERMATA_TOKEN=%d\x00", token)}
	for end := time.Now().Add(hunt); killMarked(marks) && time.Now().Before(end); {
	}
}

// killMarked tells whether there was one: it may have had children meanwhile.
func killMarked(marks [][]byte) (found bool) {
	proc, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // what was read counts
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && killIfMarked(pid, marks) {
			found = true
		}
	}
	return found
}

func killIfMarked(pid int, marks [][]byte) bool {
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
	return marked(pid, marks) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
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
