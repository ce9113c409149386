//go:build !linux

package redistest

import (
	"os"
	"syscall"
)

// childAttr leaves the server in the test's process group, so that a terminal's
// interrupt ends both: other systems cannot tie a child's life to its parent's.
func childAttr() *syscall.SysProcAttr { return nil }

func signalGroup(p *os.Process, sig syscall.Signal) error { return p.Signal(sig) }

// isStopped trusts that the signal takes effect as it is sent.
func isStopped(int) bool { return true }
