//go:build amd64 || arm64

package launch

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Pauses between checks for killed children that have not ended yet.
	shortPause = 50 * time.Microsecond
	longPause  = 10 * time.Millisecond
)

// killDescendants returns when this process has no descendant any more.
//
// It kills only its own children: no other process reaps them, so their process ids cannot be
// reused. Their children become children of this process in turn, and killed processes do not
// fork. A child traced by another descendant may not end until that descendant is killed, too.
// As long as a descendant lives, this process has a child.
func (s *supervisor) killDescendants() {
	// A program that forks continuously uses most of the processor.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) // it may not be allowed
	killed := map[int]bool{}
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		s.killCgroup()
		for {
			pid, status, ok := waitChild(-1, unix.WNOHANG)
			if !ok {
				return
			}
			if pid == 0 {
				break
			}
			if s.recordStatus(pid, status) {
				delete(killed, pid)
			}
		}
		found := false
		for _, pid := range Children() {
			if killed[pid] {
				KillTracer(pid)
				continue
			}
			_ = unix.Kill(pid, unix.SIGKILL)
			killed[pid], found = true, true
		}
		if found {
			pause = shortPause
			continue
		}
		time.Sleep(pause)
	}
}

// KillTracer kills the process that traces a child of this one, if it is a descendant as well. A tracer can keep
// a killed process from ending, and so can a process its own child.
func KillTracer(child int) {
	tracer := statusNumber(child, "TracerPid:")
	if tracer == 0 {
		return
	}
	process := statusNumber(tracer, "Tgid:") // the tracer is a thread
	pidfd, err := unix.PidfdOpen(process, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(pidfd)
	// While it traces the child, its process id cannot be reused.
	if isDescendant(process) && statusNumber(child, "TracerPid:") == tracer {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
	}
}

// statusNumber returns a numeric field of /proc/PID/status; 0: there is none.
func statusNumber(pid int, field string) int {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") // it may have ended
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, field); found {
			n, _ := strconv.Atoi(strings.TrimSpace(value)) // 0 if it is not a number
			return n
		}
	}
	return 0
}

func isDescendant(pid int) bool {
	for self, found := os.Getpid(), true; found && pid > 0; pid, found = parentOf(pid) {
		if pid == self {
			return true
		}
	}
	return false
}

// Children returns the processes whose parent is this one, including ended ones that are not reaped.
func Children() (pids []int) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	for _, t := range threads {
		text, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		if errors.Is(err, fs.ErrNotExist) && threadExists(t.Name()) {
			return childrenByParent() // this kernel has no such list
		}
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func threadExists(id string) bool {
	_, err := os.Stat("/proc/self/task/" + id)
	return err == nil
}

// childrenByParent finds children by the parents of all processes.
func childrenByParent() (pids []int) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // what was read counts
	self := os.Getpid()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok && parent == self {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf reads /proc/PID/stat. The second field is the program's name in brackets, with any characters.
func parentOf(pid int) (int, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}
