//go:build amd64 || arm64

package exechandler

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestManyProgramsOfTheWorkersUser: 120 programs of four processes each run at once below a worker without rights, with
// the default limit. No supervisor has more threads than are counted for it.
func TestManyProgramsOfTheWorkersUser(t *testing.T) {
	const attempts, uid = 120, 61_011
	dir := openDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	hold := filepath.Join(dir, "hold")
	if err := unix.Mkfifo(hold, 0o644); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(hold, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	limits := DefaultLimits()
	as := &syscall.Credential{Uid: uid, Gid: uid}
	if os.Geteuid() != 0 {
		as = &syscall.Credential{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid()), NoSetGroups: true}
		limits.Processes += len(threadsOf(t, as.Uid))
	}
	text, err := json.Marshal(attemptOrder{
		Options:  Options{Allow: []string{"/bin/sh"}, Slots: attempts, Limits: &limits},
		Payload:  payload.Exec{Argv: []string{"/bin/sh", "-c", `read x < "$0/hold" | cat | { : > "$0/$$"; exec cat; }; echo hi | tr h j`, dir}},
		Attempts: attempts,
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", workerMode)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", bytes.NewReader(text), &out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "all programs run at once", func() bool {
		running, err := filepath.Glob(filepath.Join(dir, "[0-9]*"))
		return err == nil && len(running) == attempts
	})
	supervisors, own := 0, 0
	threads := map[string]int{}
	for _, task := range threadsOf(t, as.Uid) {
		threads[filepath.Dir(filepath.Dir(task))]++
	}
	for process, n := range threads {
		name, _ := os.ReadFile(filepath.Join(process, "cmdline")) // it may have ended
		switch {
		case bytes.HasPrefix(name, []byte("fermata-exec\x00")):
			supervisors++
			if n > launch.SupervisorThreads {
				t.Errorf("a supervisor has %d threads", n)
			}
		case bytes.Contains(name, []byte(workerMode)):
			own += n
		}
	}
	if supervisors < attempts {
		t.Errorf("found %d supervisors", supervisors)
	}
	if most := attempts + runtime.GOMAXPROCS(0) + runtimeThreads; own > most {
		t.Errorf("the worker has %d threads; %d are counted for it", own, most)
	}
	writer.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var result attemptResult
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if want := strings.Repeat("ji\n", attempts); result.Refused+result.Err != "" || result.Output != want {
		t.Errorf("got %+v", result)
	}
}

func TestProcessLimit(t *testing.T) {
	const unlimited = ^uint64(0)
	own := uint64(10*processesOfAttempt + runtime.GOMAXPROCS(0) + runtimeThreads)
	for name, test := range map[string]struct {
		user       *User
		euid, most int
		hard       uint64
		want       processLimit
	}{
		"the worker's user":          {nil, 5, 100, unlimited, processLimit{100 + own, own, 100}},
		"the worker's user, by name": {&User{UID: 5}, 5, 100, unlimited, processLimit{100 + own, own, 100}},
		"another user":               {&User{UID: 5}, 0, 100, unlimited, processLimit{100, 0, 100}},
		"root":                       {nil, 0, 100, unlimited, processLimit{100, 0, 100}},
		"no limit":                   {nil, 5, 0, unlimited, processLimit{0, own, unlimited - own}},
		"a lower hard limit":         {nil, 5, 100, own + 7, processLimit{100 + own, own, 7}},
		"a hard limit that is less than the worker needs": {nil, 5, 100, 3, processLimit{100 + own, own, 0}},
	} {
		o := Options{User: test.user, Slots: 10, Limits: &Limits{Processes: test.most}}
		if got := o.limitProcesses(test.euid, test.hard); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestWarningOfFewProcesses(t *testing.T) {
	for room, want := range map[uint64]bool{39: true, 40: false} {
		var log bytes.Buffer
		o := Options{User: &User{UID: 5}, Slots: 10, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		o.warnOfFewProcesses(processLimit{forPrograms: room})
		if got := strings.Contains(log.String(), "programs may fail to start processes"); got != want {
			t.Errorf("room for %d: %q", room, &log)
		}
	}
}
