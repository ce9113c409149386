//go:build amd64 || arm64

package exechandler

import (
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"
)

// childProcesses are the supervisors of running attempts. The goroutine that started a supervisor waits for it.
type childProcesses struct {
	// Held for reading from before a process is started until it is in supervisors: until then it looks like an
	// orphan.
	starting    sync.RWMutex
	lock        sync.Mutex
	supervisors map[int]*exec.Cmd
	inherit     sync.Once
	inherited   map[int]bool // those from before this program was executed, until they are reaped
}

// ownChildren are the children of this process, of all handlers.
var ownChildren = childProcesses{supervisors: map[int]*exec.Cmd{}}

// noteInherited records the children that this process has from before exec, such as those of a shell that was
// replaced by the worker. It is called before all starts.
func (c *childProcesses) noteInherited() {
	c.inherit.Do(func() {
		orphans := c.orphanPIDs()
		c.lock.Lock()
		defer c.lock.Unlock()
		c.inherited = map[int]bool{}
		for _, pid := range orphans {
			c.inherited[pid] = true
		}
	})
}

func (c *childProcesses) startSupervisor(cmd *exec.Cmd) error {
	c.starting.RLock()
	defer c.starting.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.supervisors[cmd.Process.Pid] = cmd
	return nil
}

// awaitSupervisor reaps a supervisor.
func (c *childProcesses) awaitSupervisor(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.lock.Lock()
	defer c.lock.Unlock()
	// The process id may be in use again by now.
	if c.supervisors[cmd.Process.Pid] == cmd {
		delete(c.supervisors, cmd.Process.Pid)
	}
	return err
}

// reapOrphans reaps ended children that are not supervisors. This process adopted them as the init of its
// container.
func (c *childProcesses) reapOrphans() {
	if len(c.orphanPIDs()) == 0 {
		return
	}
	// One of them may be starting.
	c.starting.Lock()
	defer c.starting.Unlock()
	for _, pid := range c.orphanPIDs() {
		c.reapChild(pid) // the next attempt finds what is left
	}
}

func (c *childProcesses) reapChild(pid int) {
	var status unix.WaitStatus
	reaped, err := unix.Wait4(pid, &status, unix.WNOHANG|unix.WALL, nil)
	if err != nil || reaped != pid || status.Stopped() {
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.inherited, pid) // the process id may be in use again from now on
}

// killOrphans kills the children that are neither supervisors nor inherited, and their descendants: the
// processes of an attempt whose supervisor was killed. It reports whether none is left.
func (c *childProcesses) killOrphans() bool {
	c.starting.Lock()
	defer c.starting.Unlock()
	for end := time.Now().Add(maxKillWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		orphans := slices.DeleteFunc(c.orphanPIDs(), c.isInherited)
		if len(orphans) == 0 {
			return true
		}
		for _, pid := range orphans {
			_ = unix.Kill(pid, unix.SIGKILL) // it is reaped here and nowhere else
			c.reapChild(pid)
			launch.KillTracer(pid)
		}
	}
	return false
}

func (c *childProcesses) orphanPIDs() []int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return slices.DeleteFunc(launch.Children(), func(pid int) bool { return c.supervisors[pid] != nil })
}

func (c *childProcesses) isInherited(pid int) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.inherited[pid]
}
