package exechandler

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
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

// children are the leaders of attempts that go on: whoever started one waits for it.
type children struct {
	// Held for reading from before a process is started until it is in leaders:
	// meanwhile nobody can tell it from one that nobody waits for.
	starting sync.RWMutex
	lock     sync.Mutex
	leaders  map[int]*exec.Cmd
}

// own are the children of this process, by whatever handler.
var own = children{leaders: map[int]*exec.Cmd{}}

func (c *children) start(cmd *exec.Cmd) error {
	c.starting.RLock()
	defer c.starting.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.leaders[cmd.Process.Pid] = cmd
	return nil
}

// wait reaps a leader.
func (c *children) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.lock.Lock()
	defer c.lock.Unlock()
	// Its number may be another one's by now.
	if c.leaders[cmd.Process.Pid] == cmd {
		delete(c.leaders, cmd.Process.Pid)
	}
	return err
}

// reapOthers reaps all children that have ended and are not a leader: orphans that came
// to this process and ended by themselves.
func (c *children) reapOthers() {
	if len(c.others()) == 0 {
		return
	}
	// Among them may be one that is being started.
	c.starting.Lock()
	defer c.starting.Unlock()
	for _, pid := range c.others() {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // what is left the next attempt finds
	}
}

func (c *children) others() (ended []int) {
	self := os.Getpid()
	for _, pid := range processes() {
		if p, ok := statOf(pid); ok && p.state == "Z" && p.parent == self && !c.leads(pid) {
			ended = append(ended, pid)
		}
	}
	return ended
}

func (c *children) leads(pid int) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.leaders[pid] != nil
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
