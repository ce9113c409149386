//go:build amd64 || arm64

package exechandler

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/internal/core/payload"
)

// runWorkerAfter runs a worker in the place of a shell that has run the script.
func runWorkerAfter(t *testing.T, script string, order attemptOrder) (r attemptResult) {
	t.Helper()
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", script+`; exec "$0" "$1"`, testProgram(t), workerMode)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// TestFileLimitWithoutOne: programs get the soft limit that the worker was started with, not
// the one to which Go raises it.
func TestFileLimitWithoutOne(t *testing.T) {
	r := runWorkerAfter(t, "ulimit -S -n 200; ulimit -H -n 300", attemptOrder{
		Options: Options{Allow: []string{"/bin/sh"}, Limits: &Limits{}},
		Payload: payload.Exec{Argv: []string{"/bin/sh", "-c", "ulimit -S -n; ulimit -H -n"}},
	})
	if r.Err+r.Refused != "" || r.Output != "200\n300\n" {
		t.Errorf("got %+v", r)
	}
}

// TestInheritedChildrenAreSpared: a worker whose supervisor was killed kills what that one
// left, and no child from before it was started.
func TestInheritedChildrenAreSpared(t *testing.T) {
	dir := t.TempDir()
	inherited, left := filepath.Join(dir, "inherited"), filepath.Join(dir, "left")
	script := `setsid sh -c 'echo $$ >> "$0"; exec sleep 600 <&- >&- 2>&-' "$1" & while ! [ -s "$1" ]; do sleep 0.01; done; kill -9 $PPID; sleep 600`
	r := runWorkerAfter(t, `sleep 600 <&- >&- 2>&- & echo $! > '`+inherited+`'`, attemptOrder{
		Options: Options{Allow: []string{"/bin/sh"}, Containment: ContainBySubreaper, ReapOrphans: true},
		Payload: payload.Exec{Argv: []string{"/bin/sh", "-c", script, "sh", left}},
	})
	sidecar := pids(t, inherited, 1)[0]
	defer func() { _ = unix.Kill(sidecar, unix.SIGKILL) }()
	if !strings.Contains(r.Err, errNoReport.Error()) || strings.Contains(r.Err, errProcessesLeft.Error()) {
		t.Errorf("got %+v", r)
	}
	if alive(pids(t, left, 1)[0]) {
		t.Error("what the supervisor left lives")
	}
	if !alive(sidecar) {
		t.Error("an inherited child was killed")
	}
}
