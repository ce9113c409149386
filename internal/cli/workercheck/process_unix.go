//go:build unix

package workercheck

import (
	"os/exec"
	"syscall"
)

// startGroup starts a command in its own process group, so that what it starts can be ended with it.
func startGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends the command and what it has started. A group that has ended is fine.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func terminateProcess(cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGTERM) }

// suspendGroup and continueGroup stop the command and let it go on.
func suspendGroup(cmd *exec.Cmd) error  { return syscall.Kill(-cmd.Process.Pid, syscall.SIGSTOP) }
func continueGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT) }

// errNoSignals is why commands cannot be checked here; nil: they can.
var errNoSignals error
