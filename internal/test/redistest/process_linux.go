package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// childAttr gives the server a process group of its own, so that the children
// which it forks to write snapshots end with it, and has the kernel kill it if
// the test binary dies first.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func signalGroup(p *os.Process, sig syscall.Signal) error {
	return syscall.Kill(-p.Pid, sig)
}

// isStopped reports whether a stop signal has taken effect.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state follows the command name, which may itself hold parentheses.
	end := bytes.LastIndexByte(stat, ')')
	return end >= 0 && len(stat) > end+2 && stat[end+2] == 'T'
}
