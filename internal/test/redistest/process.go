package redistest

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is one run of a server binary.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process is gone and reaped
}

// startProcess starts a program whose output goes to the file at logPath. The kernel
// ties the child's death to the thread that forked it, so that thread is kept
// until the child is reaped.
func startProcess(logPath, path string, args ...string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // a killed server is expected to report its signal
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

func (p *process) processID() int { return p.cmd.Process.Pid }

func (p *process) hasExited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) sendSignal(sig syscall.Signal) error {
	if p.hasExited() {
		return os.ErrProcessDone
	}
	return signalGroup(p.cmd.Process, sig)
}

// killProcess ends the process, however it stands, and waits for its end.
func (p *process) killProcess() {
	_ = p.sendSignal(syscall.SIGKILL) // fails only if it is already gone
	<-p.done
}
