package workercheck

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What Hello has to have, and where jobs of leases are.
const checkNamespace = "conformance"

var checkQueues = []string{"check-a", "check-b"}

// maxOutput is how much of the end of a worker's output is kept.
const maxOutput = 16 << 10

// process is the worker under test.
type process struct {
	cmd    *exec.Cmd
	output *outputTail

	// Guarded by the mutex of the trial.
	exited   bool
	exitedAt time.Time
	code     int
	status   string
}

// outputTail keeps the end of what a process writes.
type outputTail struct {
	mu   sync.Mutex
	text []byte
}

func (o *outputTail) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if over := len(o.text) - maxOutput; over > 0 {
		o.text = bytes.Clone(o.text[over:])
	}
	return len(p), nil
}

func (o *outputTail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// startWorker starts the command under test with the addresses of nodes.
func (t *trial) startWorker(addresses ...string) {
	list := strings.Join(addresses, ",")
	settings := map[string]string{
		"FERMATA_ADDRESS": list, "FERMATA_SCHEDULER": list, "FERMATA_NAMESPACE": checkNamespace,
		"FERMATA_QUEUES": strings.Join(checkQueues, ","), "FERMATA_SLOTS": strconv.Itoa(t.slots),
		"FERMATA_PREFETCH": "0", "FERMATA_DRAIN_TIMEOUT": "60000ms",
	}
	t.mu.Lock()
	for name, value := range settings {
		if t.settings[name] == "" {
			t.settings[name] = value
		}
	}
	t.mu.Unlock()
	args := slices.Clone(t.options.Command)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{address}", list)
	}
	p := &process{cmd: exec.Command(args[0], args[1:]...), output: &outputTail{}}
	p.cmd.Env = append(withoutSettings(os.Environ()), t.options.Env...)
	for name, value := range t.settings {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.WaitDelay = time.Second // its children may hold its output open
	startGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.fail(ruleProgram, "cannot start the command: %v", err)
	}
	t.mu.Lock()
	t.process = p
	t.mu.Unlock()
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		// The state of the process says how it ended.
		_ = p.cmd.Wait()
		t.readJournal(t.journal)
		t.mu.Lock()
		defer t.mu.Unlock()
		p.exited, p.exitedAt, p.code, p.status = true, time.Now(), p.cmd.ProcessState.ExitCode(),
			p.cmd.ProcessState.String()
		t.noteChange()
	}()
	t.onEnd(func() {
		killGroup(p.cmd)
		<-waited
	})
}

// withoutSettings leaves out what the shell has set for workers.
func withoutSettings(environment []string) []string {
	return slices.DeleteFunc(environment, func(v string) bool {
		return strings.HasPrefix(v, "FERMATA_")
	})
}

// terminate sends SIGTERM. The worker may exit from then on.
func (t *trial) terminate() {
	t.mu.Lock()
	t.mayExit = true
	t.mu.Unlock()
	if err := terminateProcess(t.process.cmd); err != nil {
		t.fail(ruleProgram, "cannot signal the worker: %v", err)
	}
}

// writeFile writes a file that a setting names, in one step.
func (t *trial) writeFile(setting, name string, data []byte) {
	path := filepath.Join(t.dir, name)
	err := os.WriteFile(path+".new", data, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.fail(ruleProgram, "cannot write a file for the worker: %v", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settings[setting] = path
}

// outputLines returns the last lines that the worker wrote.
func (p *process) outputLines(n int) []string {
	if p == nil {
		return nil
	}
	text := strings.TrimRight(p.output.String(), "\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-n):]
}

// describeExit says how the process ended. A shell that gets SIGTERM dies of it, and leaves the worker behind.
func (p *process) describeExit() string {
	return fmt.Sprintf("exit code %d (%s)", p.code, p.status) + p.execHint()
}

// execHint is the likely cause of a process that died of SIGTERM; empty for others.
func (p *process) execHint() string {
	if p == nil || p.status != terminatedStatus {
		return ""
	}
	return ": the command does not handle SIGTERM. A shell script has to start the worker by exec, or the signal does " +
		"not reach it"
}

// terminatedStatus is the state of a process that died of SIGTERM.
const terminatedStatus = "signal: terminated"
