//go:build amd64 || arm64

package exechandler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"
)

const patience = redistest.Patience

// token is that of the attempts of this test process, of which several may run on a machine.
var token = int64(os.Getpid())

func TestMain(m *testing.M) {
	actAsProgram()
	// Workers that tests start end at once: the race detector would sleep for a second.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func newHandler(t *testing.T, o Options) worker.Handler {
	t.Helper()
	if o.Allow == nil {
		o.Allow = []string{"/bin/sh", "/usr/bin/env", "/bin/cat", "/bin/pwd", "/nonexistent/program", "/usr/bin/printf"}
	}
	o.AllowRoot = true // as which some run tests
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func task(p payload.Exec) *worker.Task {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return &worker.Task{
		Run: "namespaces/n/jobs/j/runs/r", Namespace: "n", Job: "j", Attempt: 2, Token: token, CorrelationID: "c", Payload: b,
	}
}

func outputOf(t *testing.T, task *worker.Task) report {
	t.Helper()
	var r report
	if len(task.Output()) == 0 {
		return r
	}
	if err := json.Unmarshal(task.Output(), &r); err != nil {
		t.Fatalf("output %s: %v", task.Output(), err)
	}
	return r
}

func TestPrograms(t *testing.T) {
	t.Setenv("SECRET_OF_THE_WORKER", "canary")
	h := newHandler(t, Options{Dir: "/", Env: []string{"REGION", "ENVIRONMENT", "GOLD_*"}})
	sh := func(script string, args ...string) payload.Exec {
		return payload.Exec{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
	}
	nasty := "; | & $(id) `id` \n > /tmp/x ' \" * ~"
	tests := map[string]struct {
		payload payload.Exec
		err     string
		output  string // exactly
		code    int
	}{
		"stdout and stderr": {payload: sh("echo out; echo err >&2"), output: "out\nerr\n"},
		"status":            {payload: sh("echo no; exit 3"), err: "exit status 3", output: "no\n", code: 3},
		"signal":            {payload: sh("kill -USR1 $$"), err: "signal: user defined signal 1", code: -1},
		"stdin":             {payload: payload.Exec{Argv: []string{"/bin/cat"}, Stdin: "line\n"}, output: "line\n"},
		"stdin unread":      {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Stdin: strings.Repeat("x", 1<<20)}, output: "/\n"},
		"dir":               {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Dir: "/usr"}, output: "/usr\n"},
		"no shell":          {payload: payload.Exec{Argv: []string{"/usr/bin/printf", "%s", nasty}}, output: nasty},
		"environment": {payload: payload.Exec{Argv: []string{"/usr/bin/env"}, Env: map[string]string{"REGION": "eu"}},
			output: "PATH=" + DefaultPath + "\nHOME=/nonexistent\nLANG=C.UTF-8\nFERMATA_RUN=namespaces/n/jobs/j/runs/r\nFERMATA_NAMESPACE=n\nFERMATA_JOB=j\n" +
				"FERMATA_ATTEMPT=2\nFERMATA_TOKEN=" + strconv.FormatInt(token, 10) + "\nFERMATA_CORRELATION_ID=c\nREGION=eu\n"},
		"not allowed":    {payload: payload.Exec{Argv: []string{"/bin/ls"}}, err: `program "/bin/ls" is not allowed`},
		"by name":        {payload: payload.Exec{Argv: []string{"sh"}}, err: `program "sh" is not allowed`},
		"another way":    {payload: payload.Exec{Argv: []string{"/bin/../bin/sh"}}, err: "is not allowed"},
		"missing":        {payload: payload.Exec{Argv: []string{"/nonexistent/program"}}, err: "start: lstat /nonexistent"},
		"no argv":        {payload: payload.Exec{}, err: "argv is empty"},
		"NUL":            {payload: payload.Exec{Argv: []string{"/bin/sh", "\x00"}}, err: "NUL byte"},
		"relative dir":   {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Dir: "tmp"}, err: "dir is not an absolute path"},
		"missing dir":    {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Dir: "/nonexistent"}, err: "start: "},
		"loader":         {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"LD_PRELOAD": "/x"}}, err: "LD_PRELOAD cannot be set"},
		"path":           {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"PATH": "/x"}}, err: "PATH cannot be set"},
		"token":          {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"FERMATA_TOKEN": "1"}}, err: "FERMATA_TOKEN cannot be set"},
		"bash functions": {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"BASH_FUNC_ls%%": "() { :; }"}}, err: "is not the name of a variable"},
		"proxy":          {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"https_proxy": "http://x"}}, err: "https_proxy is not allowed on this worker; --exec-env https_proxy would allow it"},
		"home":           {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"HOME": "/x"}}, err: "HOME cannot be set"},
		"python":         {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"PYTHONSTARTUP": "/x"}}, err: "PYTHONSTARTUP is not allowed on this worker; --exec-env PYTHONSTARTUP would allow it"},
		"tar":            {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"TAR_OPTIONS": "--to-command=/x"}}, err: "TAR_OPTIONS is not allowed on this worker; --exec-env TAR_OPTIONS would allow it"},
		"make":           {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"makeflags": "--eval=$(shell /x)"}}, err: "makeflags is not allowed on this worker; --exec-env makeflags would allow it"},
		"psql":           {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"PSQLRC": "/x"}}, err: "PSQLRC is not allowed on this worker; --exec-env PSQLRC would allow it"},
		"like a loader":  {payload: payload.Exec{Argv: []string{"/bin/pwd"}, Env: map[string]string{"ENVIRONMENT": "eu", "GOLD_": "x"}}, output: "/\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			task := task(test.payload)
			err := h(t.Context(), task)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got %v, want %q", err, test.err)
			}
			if r := outputOf(t, task); r.Output != test.output || r.ExitCode != test.code {
				t.Errorf("output is %+v, want %q and status %d", r, test.output, test.code)
			}
		})
	}
	if err := h(t.Context(), &worker.Task{Payload: []byte(`{"argv":["/bin/pwd"],"shell":true}`)}); err == nil {
		t.Error("unknown field was taken")
	}
}

// What is the same at each attempt is not attempted again.
func TestPermanentFaults(t *testing.T) {
	h := newHandler(t, Options{})
	for text, want := range map[string]string{
		`{`: "payload: ", `{"argv":["/bin/pwd"],"shell":true}`: "payload: ", `{"argv":[]}`: "argv is empty",
		`{"argv":["/bin/pwd"],"dir":"sub"}`:           "not an absolute path",
		`{"argv":["/bin/pwd"],"dir":"/usr"}`:          "--exec-dir names where directories may be",
		`{"argv":["/bin/ls"]}`:                        `payload: program "/bin/ls" is not allowed on this worker; --exec-allow names`,
		`{"argv":["/bin/pwd"],"env":{"REGION":"eu"}}`: "--exec-env REGION",
		`{"argv":["/bin/pwd"],"env":{"A-B":"eu"}}`:    "is not the name of a variable",
		`{"argv":["/bin/sh","${secret:key}"]}`:        "may stand in env and stdin only",
	} {
		if err := h(t.Context(), &worker.Task{Payload: []byte(text)}); !worker.IsPermanent(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v (permanent: %v), want %q", text, err, worker.IsPermanent(err), want)
		}
	}
	// The program may be installed later.
	if err := h(t.Context(), task(payload.Exec{Argv: []string{"/nonexistent/program"}})); err == nil || worker.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

func TestLongOutputKeepsItsEnd(t *testing.T) {
	h := newHandler(t, Options{})
	task := task(payload.Exec{Argv: []string{"/bin/sh", "-c", "yes € | head -c 1000000; printf end"}})
	if err := h(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	r := outputOf(t, task)
	if r.Bytes != 1000003 || len(task.Output()) > worker.MaxOutput || strings.ContainsRune(strings.TrimSuffix(r.Output, "\uFFFDend"), '\uFFFD') {
		t.Errorf("output is %+v", r)
	}
}

// alive tells whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// pids waits until the script has written this many process ids to the file.
func pids(t *testing.T, file string, n int) []int {
	t.Helper()
	var out []int
	redistest.Eventually(t, patience, "the program wrote its process ids", func() bool {
		out = out[:0]
		b, _ := os.ReadFile(file)
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				out = append(out, pid)
			}
		}
		return len(out) == n && strings.HasSuffix(string(b), "\n")
	})
	return out
}

func TestTheWholeGroupEnds(t *testing.T) {
	// Each script writes the ids of itself, a child and a grandchild.
	family := `sh -c 'sleep 600 & echo $! >> "$0"; echo $$ >> "$0"; wait' "$1" & echo $$ >> "$1"; `
	for name, test := range map[string]struct {
		script string
		cancel bool
		err    error
	}{
		"obedient":        {script: family + "wait", cancel: true, err: worker.ErrTimeout},
		"deaf":            {script: "trap '' TERM; " + family + "wait", cancel: true, err: worker.ErrTimeout},
		"polite":          {script: "trap 'exit 0' TERM; " + family + "wait", cancel: true, err: worker.ErrTimeout},
		"ends and leaves": {script: family + `while [ $(wc -l < "$1") -lt 3 ]; do sleep 0.01; done; exit 0`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandler(t, Options{Grace: 200 * time.Millisecond})
			file := filepath.Join(t.TempDir(), "pids")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			done := make(chan error, 1)
			go func() { done <- h(ctx, task(payload.Exec{Argv: []string{"/bin/sh", "-c", test.script, "sh", file}})) }()
			family := pids(t, file, 3)
			if test.cancel {
				cancel(worker.ErrTimeout)
			}
			select {
			case err := <-done:
				if !errors.Is(err, test.err) {
					t.Errorf("got %v, want %v", err, test.err)
				}
			case <-time.After(patience):
				t.Fatal("the handler does not return")
			}
			for _, pid := range family {
				redistest.Eventually(t, patience, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
			}
		})
	}
}

// TestDaemonEnds: a process that made a session of its own and closed everything is
// found by its variables.
func TestDaemonEnds(t *testing.T) {
	h := newHandler(t, Options{})
	file := filepath.Join(t.TempDir(), "pids")
	script := `setsid sh -c 'setsid sh -c "echo \$\$ >> \"\$0\"; exec sleep 600" "$0" <&- >&- 2>&- & echo $$ >> "$0"; exec sleep 600' "$1" <&- >&- 2>&- &
		while [ "$(wc -l < "$1")" != 2 ]; do sleep 0.01; done 2>&-`
	if err := h(t.Context(), task(payload.Exec{Argv: []string{"/bin/sh", "-c", script, "sh", file}})); err != nil {
		t.Error(err)
	}
	for _, pid := range pids(t, file, 2) {
		redistest.Eventually(t, patience, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
	}
}

// TestAllChildrenAreReaped: this process stands for the first one of a container, to
// which all come whose parent has ended.
func TestAllChildrenAreReaped(t *testing.T) {
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	h := newHandler(t, Options{ReapOrphans: true})
	for name, script := range map[string]string{
		"a child":       `sleep 600 <&- >&- 2>&- & echo $! >> "$1"`,
		"a grandchild":  `sh -c 'sleep 600 <&- >&- 2>&- & echo $! >> "$0"' "$1"`,
		"a daemon":      `setsid sh -c 'echo $$ >> "$0"; exec sleep 600' "$1" <&- >&- 2>&- & while ! [ -s "$1" ]; do sleep 0.01; done`,
		"several":       `for i in 1 2 3 4 5; do setsid sh -c 'sleep 600 & echo $! >> "$0"; wait' "$1" <&- >&- 2>&- & done; while [ "$(wc -l < "$1")" != 5 ]; do sleep 0.01; done`,
		"ended by then": `(exit 0) & sh -c 'true & exit 0'; echo 0 >> "$1"`,
		"a daemon that ended by then": `setsid sh -c 'setsid sh -c "echo \$\$ >> \"\$0\"" "$0" & exit 0' "$1" <&- >&- 2>&-
			while ! [ -s "$1" ]; do sleep 0.01; done; while grep -qs "^State:.[^Z]" "/proc/$(cat "$1")/status"; do sleep 0.01; done`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pids")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := h(t.Context(), task(payload.Exec{Argv: []string{"/bin/sh", "-c", script, "sh", file}})); err != nil {
				t.Error(err)
			}
			if wrote, err := os.ReadFile(file); err != nil || len(wrote) == 0 {
				t.Fatalf("the program left nothing behind: %v", err)
			}
			for _, pid := range launch.Children() {
				t.Errorf("process %d has ended and is not reaped", pid)
			}
		})
	}
}

// TestOtherChildrenAreNotReaped: attempts side by side, each of which reaps what has ended, leave each other's programs
// alone, and without Options.ReapOrphans also the processes that somebody else started.
func TestOtherChildrenAreNotReaped(t *testing.T) {
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	orphan := `setsid true & exit 3`
	h := newHandler(t, Options{ReapOrphans: true})
	var attempts sync.WaitGroup
	for i := range 4 {
		attempts.Go(func() {
			for j := range 15 {
				one := task(payload.Exec{Argv: []string{"/bin/sh", "-c", orphan}})
				one.Token = int64(1000 + 100*i + j)
				if err := h(t.Context(), one); err == nil || err.Error() != "exit status 3" {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	attempts.Wait()

	strange := exec.Command("/bin/sh", "-c", "exit 5")
	if err := strange.Start(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "it has ended", func() bool { return !alive(strange.Process.Pid) })
	if err := newHandler(t, Options{})(t.Context(), task(payload.Exec{Argv: []string{"/bin/sh", "-c", orphan}})); err == nil || err.Error() != "exit status 3" {
		t.Errorf("got %v", err)
	}
	if err := strange.Wait(); err == nil || err.Error() != "exit status 5" {
		t.Errorf("a process that this package did not start: got %v", err)
	}
}

// TestProcessThatHidItsEnvironmentIsKilled: one that left the group and shed its variables
// as well.
func TestProcessThatHidItsEnvironmentIsKilled(t *testing.T) {
	h := newHandler(t, Options{})
	file := filepath.Join(t.TempDir(), "pids")
	if err := h(t.Context(), task(payload.Exec{Argv: []string{"/bin/sh", "-c", `setsid env -i sh -c 'echo $$ > "$0"; exec sleep 600' "$1" & while ! [ -s "$1" ]; do sleep 0.01; done`, "sh", file}})); err != nil {
		t.Error(err)
	}
	for _, pid := range pids(t, file, 1) {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

func TestEndedContextStartsNothing(t *testing.T) {
	h := newHandler(t, Options{})
	file := filepath.Join(t.TempDir(), "started")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(worker.ErrCancelled)
	if err := h(ctx, task(payload.Exec{Argv: []string{"/bin/sh", "-c", `touch "$1"`, "sh", file}})); !errors.Is(err, worker.ErrCancelled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the program ran")
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"nothing allowed": {},
		"by name":         {Allow: []string{"sh"}},
		"unclean":         {Allow: []string{"/bin/../bin/sh"}},
		"negative grace":  {Allow: []string{"/bin/sh"}, Grace: -1},
		"negative limit":  {Allow: []string{"/bin/sh"}, Limits: &Limits{Files: -1}},
		"relative dir":    {Allow: []string{"/bin/sh"}, Dir: "tmp"},
		"root":            {Allow: []string{"/bin/sh"}, User: &User{}},
		"a directory":     {Allow: []string{"/bin"}, AllowRoot: true},
		"no program":      {Allow: []string{"/etc/passwd"}, AllowRoot: true},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := tailBuffer{limit: tailLimit(0)}
		var all []byte
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 3*MaxExcerpt), 0, 8).Draw(t, "writes") {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte('a' + (len(all)+i)%26)
			}
			w.Write(b)
			all = append(all, b...)
		}
		want := all[max(0, len(all)-MaxExcerpt):]
		got, total := w.lastBytes()
		got = got[len(got)-excerptLength(got):]
		if string(got) != string(want) || total != int64(len(all)) || cap(w.kept) > 16*MaxExcerpt {
			t.Fatalf("kept %d of %d bytes, want %d", len(got), total, len(want))
		}
	})
}
