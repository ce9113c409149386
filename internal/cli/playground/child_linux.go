package playground

import "syscall"

// childAttr gives a child a process group of its own, and has the kernel kill it
// if this process dies first.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
