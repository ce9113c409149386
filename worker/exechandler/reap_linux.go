package exechandler

import (
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reaps tells whether processes whose parent has ended become children of this one: it is
// the first of its container, as a worker is on Kubernetes, or has asked for them. Nobody
// else waits for them then, and one that has ended counts against the limits of
// processes until somebody does.
func reaps() bool {
	if os.Getpid() == 1 {
		return true
	}
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return err == nil && is != 0
}

// bury reaps what has been killed of an attempt: what is in the session of its leader, and
// the strays, by number and when they started. The leader itself is not touched; it must
// not have been reaped, so that the number of the session is its own. Processes that
// have been killed need a moment to end, and become children of this one when their
// parent has ended too; it waits for that no longer than hunt.
func bury(leader int, strays map[int]string) {
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	self := os.Getpid()
	for end := time.Now().Add(hunt); time.Now().Before(end); <-pause.C {
		left := false
		for _, pid := range processes() {
			p, ok := statOf(pid)
			ours := p.session == leader && pid != leader || strays[pid] != "" && strays[pid] == p.started
			if !ok || !ours {
				continue
			}
			left = true
			if p.state == "Z" && p.parent == self {
				// Whatever it says, the next look tells.
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
		if !left {
			return
		}
	}
}

// stat is what the kernel tells of a process.
type stat struct {
	state           string // one letter; Z: ended and not reaped
	parent, session int
	started         string // in ticks since the machine started
}

// statOf reads /proc/PID/stat. Its second field is the name of the program in
// brackets, which may have any characters.
func statOf(pid int) (stat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return stat{}, false
	}
	s := stat{state: fields[0], started: fields[19]}
	var err1, err2 error
	s.parent, err1 = strconv.Atoi(fields[1])
	s.session, err2 = strconv.Atoi(fields[3])
	return s, err1 == nil && err2 == nil
}
