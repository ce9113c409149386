package observability

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// root is where the repository begins.
const root = "../../.."

// buildCommand makes a command once for a test and returns its path.
func buildCommand(t *testing.T, dir, name string, flags ...string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	out, err := exec.Command("go", slices.Concat([]string{"build", "-o", path}, flags, []string{"github.com/fermata-io/fermata/cmd/" + name})...).CombinedOutput()
	if err != nil {
		t.Fatalf("go build %s: %v\n%s", name, err, out)
	}
	return path
}

// versionFlag is the flag that sets the version of a command.
func versionFlag(v string) string { return "-ldflags=-X main.buildVersion=" + v }

// process is a child that dies with the test.
type process struct {
	t    *testing.T
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

// startProcess starts a program. Its output is shown when the test fails.
func startProcess(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, log: log.Name(), cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// The kernel ties the child's death to the thread that forked it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer log.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // a killed child reports its signal
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() {
		p.killProcess()
		if text, err := os.ReadFile(p.log); t.Failed() && err == nil {
			t.Logf("end of the log of %s:\n%s", name, text[max(0, len(text)-1500):])
		}
	})
	return p
}

// killProcess ends the process as a crash would.
func (p *process) killProcess() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // fails only if it is gone
	<-p.done
}

// awaitLog waits for a line of the JSON log and returns its fields.
func (p *process) awaitLog(message string) (found map[string]string) {
	p.t.Helper()
	redistest.Eventually(p.t, redistest.Patience, p.name+" logs "+message, logLine(p, message, &found))
	return found
}

// logFields are the texts of a line of JSON; nil when it is none.
func logFields(line string) map[string]string {
	var all map[string]any
	if json.Unmarshal([]byte(line), &all) != nil {
		return nil
	}
	texts := make(map[string]string)
	for k, v := range all {
		if s, ok := v.(string); ok {
			texts[k] = s
		}
	}
	return texts
}

// readLines are those of a file.
func readLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}
