package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// process is a child in a process group of its own. The kernel kills it if the
// test binary dies first.
type process struct {
	t    testing.TB
	name string
	log  string // path
	cmd  *exec.Cmd
	done chan struct{} // closed once it is gone and reaped
}

// startProcess starts a program whose output goes to a log, the end of which is shown
// when the test fails. It is killed when the test ends.
func startProcess(t testing.TB, name string, env []string, path string, args ...string) *process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{t: t, name: name, log: log.Name(), cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel ties the child's death to the thread that forked it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // a killed child is expected to report its signal
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() {
		p.killProcess()
		p.reportLog()
	})
	return p
}

// reportLog shows the end of the log of a failed test, and fails a test whose
// process found a data race or panicked.
func (p *process) reportLog() {
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Error(err)
		return
	}
	for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		// At the beginning of a line: what a handler died of stands inside of one.
		if i := bytes.Index(append([]byte("\n"), log...), []byte("\n"+sign)); i >= 0 {
			p.t.Errorf("%s:\n%s", p.name, log[i:min(len(log), i+6000)])
		}
	}
	if p.t.Failed() {
		const most = 8000
		p.t.Logf("end of the log of %s:\n%s", p.name, log[max(0, len(log)-most):])
	}
}

func (p *process) hasExited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) sendSignal(sig syscall.Signal) {
	p.t.Helper()
	if p.hasExited() {
		p.t.Fatalf("%s has ended by itself: %v", p.name, p.cmd.ProcessState)
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil {
		p.t.Fatalf("%s: %v: %v", p.name, sig, err)
	}
}

// killProcess ends the process as a crash would.
func (p *process) killProcess() {
	if !p.hasExited() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // fails only if it is already gone
	}
	<-p.done
}

// freezeProcess stops the process between two instructions; thaw lets it go on.
func (p *process) freezeProcess() {
	p.t.Helper()
	p.sendSignal(syscall.SIGSTOP)
	redistest.Eventually(p.t, patience, p.name+" stops", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return err
		}
		if _, rest, _ := bytes.Cut(stat, []byte(") ")); !bytes.HasPrefix(rest, []byte("T")) {
			return fmt.Errorf("its state is %q", rest[:1])
		}
		return nil
	})
}

func (p *process) thawProcess() {
	p.t.Helper()
	p.sendSignal(syscall.SIGCONT)
}

// terminate asks the process to end and fails the test unless it does so in time,
// with exit code 0.
func (p *process) terminate(limit time.Duration) {
	p.t.Helper()
	p.sendSignal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("%s has not ended %v after SIGTERM", p.name, limit)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("%s ended with %v", p.name, p.cmd.ProcessState)
	}
}

// countLogged is how often a text stands in the log.
func (p *process) countLogged(text string) int {
	p.t.Helper()
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return bytes.Count(log, []byte(text))
}

// awaitLog waits for a line of the JSON log with this message and returns it.
func (p *process) awaitLog(limit time.Duration, message string) map[string]any {
	p.t.Helper()
	var found map[string]any
	redistest.Eventually(p.t, limit, fmt.Sprintf("%s logs %q", p.name, message), func() error {
		log, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message {
				found = fields
				return nil
			}
		}
		if p.hasExited() {
			p.t.Fatalf("%s has ended: %v\n%s", p.name, p.cmd.ProcessState, log)
		}
		return fmt.Errorf("not yet")
	})
	return found
}

// patience bounds every wait for what has to come. Passing it is a failure, so that it
// costs nothing to have much of it.
const patience = redistest.Patience
