//go:build amd64 || arm64

package exechandler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"
)

// The test program also is the processes that the tests need.
const (
	workerMode     = "worker-of-attempts"
	undumpableMode = "daemon-that-nobody-may-trace"
	forkingMode    = "daemons-that-fork-for-ever"
	tracedMode     = "daemon-that-traces-its-parent"
	tracedExitMode = "daemon-that-stops-its-parent-at-its-exit"
	traceMeMode    = "asks-its-parent-to-trace-it"
)

// actAsProgram does not return if this process is one of those.
func actAsProgram() {
	if len(os.Args) != 2 {
		return
	}
	switch os.Args[1] {
	case workerMode:
		runAttempts()
	case undumpableMode:
		hideAndSleep()
	case forkingMode:
		forkForEver()
	case tracedMode, tracedExitMode:
		leaveTracer(os.Args[1])
	}
}

// attemptOrder is what a worker is to do, and attemptResult how it went.
type (
	attemptOrder struct {
		Options  Options
		Payload  payload.Exec
		Attempts int // at once; 0 is 1
	}
	attemptResult struct {
		Refused, Err string
		Output       string
		Log          string
	}
)

func runAttempts() {
	var order attemptOrder
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		panic(err)
	}
	var log bytes.Buffer
	order.Options.AllowRoot, order.Options.Logger = true, slog.New(slog.NewTextHandler(&log, nil))
	var result attemptResult
	h, err := New(order.Options)
	if err != nil {
		result.Refused = err.Error()
	} else {
		var lock sync.Mutex
		var attempts sync.WaitGroup
		for range max(1, order.Attempts) {
			attempts.Go(func() {
				one := task(order.Payload)
				err := h(context.Background(), one)
				lock.Lock()
				defer lock.Unlock()
				if err != nil {
					result.Err = err.Error()
				}
				var r report
				_ = json.Unmarshal(one.Output(), &r) // no output is none
				result.Output += r.Output
			})
		}
		attempts.Wait()
	}
	result.Log = log.String()
	_ = json.NewEncoder(os.Stdout).Encode(result)
	os.Exit(0)
}

// hideAndSleep leaves a daemon that prints its number and hides its environment.
func hideAndSleep() {
	if os.Getppid() != 1 && os.Getenv("DAEMON") == "" {
		daemon := exec.Command("/proc/self/exe", undumpableMode)
		daemon.Env, daemon.SysProcAttr = append(os.Environ(), "DAEMON=1"), &syscall.SysProcAttr{Setsid: true}
		out, err := daemon.StdoutPipe()
		if err != nil || daemon.Start() != nil {
			syscall.Exit(1)
		}
		if _, err := io.Copy(os.Stdout, out); err != nil {
			syscall.Exit(1)
		}
		syscall.Exit(0)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		syscall.Exit(1)
	}
	fmt.Println(os.Getpid())
	for file := range 3 {
		_ = unix.Close(file)
	}
	for {
		_ = unix.Pause()
	}
}

// forkForEver leaves processes that live for 0.1 to 1 ms, the last thing of which is to make
// another one in a session of its own.
func forkForEver() {
	runtime.LockOSThread()
	for i := range 3 {
		pause := unix.NsecToTimespec(int64(i*i*250_000 + 100_000))
		forkChain(&pause)
	}
	syscall.Exit(0)
}

//go:nosplit
//go:norace
func forkChain(pause *unix.Timespec) {
	if pid, _, _ := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0); pid != 0 {
		return
	}
	for {
		syscall.RawSyscall6(unix.SYS_SETSID, 0, 0, 0, 0, 0, 0)
		syscall.RawSyscall6(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(pause)), 0, 0, 0, 0, 0)
		if pid, _, _ := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0); pid != 0 {
			syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
		}
	}
}

// dockerCapabilities are those that containers have by default.
var dockerCapabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP,
	unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT, unix.CAP_MKNOD, unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP,
}

// startWorker starts a worker of one attempt with no more than these capabilities.
func startWorker(t *testing.T, order attemptOrder, capabilities []int) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	out = &bytes.Buffer{}
	cmd = exec.Command("/proc/self/exe", workerMode)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), out, os.Stderr
	started := make(chan error)
	go func() {
		// The thread is not used again.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			for c := range unix.CAP_LAST_CAP + 1 {
				if !slices.Contains(capabilities, c) {
					_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0) // this kernel may know fewer
				}
			}
		}
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

func runWorker(t *testing.T, order attemptOrder) attemptResult {
	t.Helper()
	cmd, out := startWorker(t, order, dockerCapabilities)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var result attemptResult
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return result
}

// another is a user that programs of a worker of root run as. Without root it is the user
// of the tests.
func another(uid uint32) *User {
	if os.Geteuid() == 0 {
		return &User{UID: uid, GID: uid}
	}
	return nil
}

// testProgram is a copy of this program that all users may run.
func testProgram(t *testing.T) string {
	t.Helper()
	dir := openDir(t)
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// openDir is a directory that all users may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mechanisms are the containments that work here. The second one has to be refused where
// it does not.
func mechanisms(t *testing.T) []Containment {
	t.Helper()
	parent, err := findCgroup()
	if err == nil {
		err = containment{parent}.probe()
	}
	if err == nil {
		return []Containment{ContainBySubreaper, ContainByCgroup}
	}
	if _, newErr := New(Options{Allow: []string{"/bin/sh"}, AllowRoot: true, Containment: ContainByCgroup}); newErr == nil {
		t.Errorf("taken, though %v", err)
	}
	return []Containment{ContainBySubreaper}
}

// daemonScript starts a daemon that has closed everything, and prints its number.
const daemonScript = `echo $(setsid sh -c 'echo $$; exec sleep 600 <&- >&- 2>&-' &)`

// TestDaemonsEndWithTheirAttempt: daemons whose environment the worker cannot read: of
// another user in a container, of one that forbids it, and of one that is another
// process each time it is looked at.
func TestDaemonsEndWithTheirAttempt(t *testing.T) {
	program := testProgram(t)
	for _, by := range mechanisms(t) {
		for name, test := range map[string]struct {
			argv  []string
			user  *User
			times int
		}{
			"of another user":     {[]string{"/bin/sh", "-c", daemonScript}, another(61_011), 3},
			"without environment": {[]string{"/bin/sh", "-c", strings.Replace(daemonScript, "setsid", "setsid env -i", 1)}, another(61_011), 3},
			"that cannot be read": {[]string{program, undumpableMode}, nil, 3},
		} {
			t.Run(string(by)+"/"+name, func(t *testing.T) {
				o := Options{Allow: []string{"/bin/sh", program}, User: test.user, Containment: by, ReapOrphans: true}
				for range test.times {
					r := runWorker(t, attemptOrder{Options: o, Payload: payload.Exec{Argv: test.argv}})
					pid, err := strconv.Atoi(strings.TrimSpace(r.Output))
					if r.Refused+r.Err != "" || err != nil {
						t.Fatalf("%+v", r)
					}
					if alive(pid) {
						t.Errorf("daemon %d is left", pid)
						_ = unix.Kill(pid, unix.SIGKILL)
					}
					if !strings.Contains(r.Log, "exec attempts are contained by a "+string(by)) {
						t.Errorf("the log says %s", r.Log)
					}
				}
			})
		}
	}
}

// TestProcessesThatForkForEverEnd: the chain of processes is cut, however fast it is.
func TestProcessesThatForkForEverEnd(t *testing.T) {
	program := testProgram(t)
	for _, by := range mechanisms(t) {
		for range 6 {
			o := Options{Allow: []string{program}, User: another(61_012), Containment: by, ReapOrphans: true}
			if r := runWorker(t, attemptOrder{Options: o, Payload: payload.Exec{Argv: []string{program, forkingMode}}}); r.Refused+r.Err != "" {
				t.Fatalf("%s: %+v", by, r)
			}
			if left := processesOf(program); len(left) > 0 {
				t.Errorf("%s: %d are left", by, len(left))
				endProcesses(t, program)
			}
		}
	}
}

// processesOf are those that run a file.
func processesOf(program string) (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil && file == program {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

func endProcesses(t *testing.T, program string) {
	redistest.Eventually(t, patience, "they end", func() bool {
		left := processesOf(program)
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return len(left) == 0
	})
}

// TestKilledWorkerLeavesNothing: neither the program, nor its daemon, nor supervisors.
func TestKilledWorkerLeavesNothing(t *testing.T) {
	for _, by := range mechanisms(t) {
		file := filepath.Join(openDir(t), "pids")
		if err := os.WriteFile(file, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o666); err != nil {
			t.Fatal(err)
		}
		script := `setsid env -i sh -c 'echo $$ >> "$0"; exec sleep 600 <&- >&- 2>&-' "$1" & echo $$ $PPID >> "$1"; exec sleep 600`
		order := attemptOrder{Options: Options{Allow: []string{"/bin/sh"}, User: another(61_013), Containment: by}, Payload: payload.Exec{Argv: []string{"/bin/sh", "-c", script, "sh", file}}}
		cmd, _ := startWorker(t, order, dockerCapabilities)
		processes := pids(t, file, 3)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		for _, pid := range processes {
			redistest.Eventually(t, patience, fmt.Sprintf("%s: process %d is gone", by, pid), func() bool { return !alive(pid) })
		}
	}
}

// TestKilledSupervisorLeavesNothing: a program of the worker's own user can kill it, and
// gains nothing by it.
func TestKilledSupervisorLeavesNothing(t *testing.T) {
	for _, by := range mechanisms(t) {
		file := filepath.Join(t.TempDir(), "pids")
		script := `setsid sh -c 'echo $$ >> "$0"; exec sleep 600 <&- >&- 2>&-' "$1" & while ! [ -s "$1" ]; do sleep 0.01; done; kill -9 $PPID; sleep 600`
		o := Options{Allow: []string{"/bin/sh"}, Containment: by, ReapOrphans: by == ContainBySubreaper}
		r := runWorker(t, attemptOrder{Options: o, Payload: payload.Exec{Argv: []string{"/bin/sh", "-c", script, "sh", file}}})
		if !strings.Contains(r.Err, errNoReport.Error()) {
			t.Errorf("%s: %+v", by, r)
		}
		for _, pid := range pids(t, file, 1) {
			if alive(pid) {
				t.Errorf("%s: process %d is left", by, pid)
			}
		}
	}
}

// TestAttemptsAreIsolated: the end of one attempt does not touch the daemon of another.
func TestAttemptsAreIsolated(t *testing.T) {
	for _, by := range mechanisms(t) {
		h := newHandler(t, Options{Containment: by})
		file := filepath.Join(t.TempDir(), "pids")
		ctx, cancel := context.WithCancelCause(t.Context())
		long := make(chan error, 1)
		script := `setsid sh -c 'echo $$ >> "$0"; exec sleep 600' "$1" & exec sleep 600`
		go func() { long <- h(ctx, task(payload.Exec{Argv: []string{"/bin/sh", "-c", script, "sh", file}})) }()
		daemon := pids(t, file, 1)[0]
		if err := h(t.Context(), task(payload.Exec{Argv: []string{"/bin/sh", "-c", daemonScript}})); err != nil {
			t.Error(err)
		}
		if !alive(daemon) {
			t.Errorf("%s: the daemon of another attempt has ended", by)
		}
		cancel(worker.ErrCancelled)
		<-long
		if alive(daemon) {
			t.Errorf("%s: the daemon is left", by)
		}
	}
}

// TestProgramsThatCannotBeEnded: a worker that may change users and not signal them.
func TestProgramsThatCannotBeEnded(t *testing.T) {
	if os.Geteuid() != 0 {
		if err := (Options{User: &User{UID: uint32(os.Geteuid())}}).checkSignals(); err != nil {
			t.Error(err)
		}
		return
	}
	order := attemptOrder{Options: Options{Allow: []string{"/bin/sh"}, User: another(61_014)}, Payload: payload.Exec{Argv: []string{"/bin/sh"}}}
	cmd, out := startWorker(t, order, []int{unix.CAP_SETGID, unix.CAP_SETUID})
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "needs the capability KILL") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestCgroupsAreRemoved: an attempt leaves no control group, and a worker removes those
// of workers that were killed.
func TestCgroupsAreRemoved(t *testing.T) {
	if len(mechanisms(t)) == 1 {
		return // none can be made here, which that function has checked
	}
	parent, err := findCgroup()
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(parent, fmt.Sprintf("%s%d-1", cgroupPrefix, ended.Process.Pid))
	if err := os.Mkdir(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, Options{Containment: ContainByCgroup})
	if err := h(t.Context(), task(payload.Exec{Argv: []string{"/bin/sh", "-c", daemonScript}})); err != nil {
		t.Error(err)
	}
	own, _ := filepath.Glob(filepath.Join(parent, fmt.Sprintf("%s%d-*", cgroupPrefix, os.Getpid())))
	if _, err := os.Stat(stale); len(own) > 0 || err == nil {
		t.Errorf("%q and %q are left", own, stale)
	}
}

func TestLocateCgroup(t *testing.T) {
	const mounts = "30 25 0:26 / /sys rw - sysfs sysfs rw\n33 30 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
	const part = "33 30 0:28 /pods/a /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
	for _, test := range [][3]string{
		{"9:name=systemd:/\n0::/\n", mounts, "/sys/fs/cgroup/unified"},
		{"0::/system.slice/w.service\n", mounts, "/sys/fs/cgroup/unified/system.slice/w.service"},
		{"0::/pods/a/b\n", part, "/sys/fs/cgroup/b"},
		{"0::/pods/b\n", part, ""},
		{"0::/../b\n", mounts, ""},
		{"4:memory:/x\n", mounts, ""},
		{"0::/\n", "30 25 0:26 / /sys rw - sysfs sysfs rw\n", ""},
	} {
		got, err := locateCgroup([]byte(test[0]), []byte(test[1]))
		if got != test[2] || (err == nil) != (test[2] != "") {
			t.Errorf("%q: %q, %v", test[0], got, err)
		}
	}
}

func TestChildrenAreListed(t *testing.T) {
	child := exec.Command("/bin/sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(launch.Children(), child.Process.Pid) {
		t.Error("not listed")
	}
	_ = child.Process.Kill()
	_ = child.Wait() // it was killed
	if slices.Contains(launch.Children(), child.Process.Pid) {
		t.Error("listed after its end")
	}
}
