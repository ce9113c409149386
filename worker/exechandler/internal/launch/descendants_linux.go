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
	// Pauses between looks at children that have been killed and have not ended yet.
	shortPause = 50 * time.Microsecond
	longPause  = 10 * time.Millisecond
)

// killDescendants returns when this process has no descendant any more.
//
// It kills its own children only: nobody else reaps those, so that their numbers are
// theirs. What they leave becomes a child in turn, and what has been killed forks no
// more. A child that another descendant traces may be held in its end by that one, which is
// then killed as well. The kernel says when none is left: as long as a descendant lives, this
// process has a child.
func (s *supervisor) killDescendants() {
	// A program that forks as fast as it can has most of the processor.
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
			if s.note(pid, status) {
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

// KillTracer kills the process that traces a child of this one, if it is a descendant too: a
// tracer can hold a process that has been killed for ever, and the process its own child.
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
	// While it traces the child its number is its own.
	if isDescendant(process) && statusNumber(child, "TracerPid:") == tracer {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
	}
}

// statusNumber is a field of /proc/PID/status; 0: none.
func statusNumber(pid int, field string) int {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") // it may have ended
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, field); found {
			n, _ := strconv.Atoi(strings.TrimSpace(value)) // 0 if it is none
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

// Children are the processes whose parent is this one, also those that have ended and
// are not reaped.
func Children() (pids []int) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	for _, t := range threads {
		text, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		if errors.Is(err, fs.ErrNotExist) && threadExists(t.Name()) {
			return childrenByParent() // this kernel keeps no such list
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

// childrenByParent looks through all processes.
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

// parentOf reads /proc/PID/stat. Its second field is the name of the program in
// brackets, which may have any characters.
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
