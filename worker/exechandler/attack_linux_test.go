//go:build amd64 || arm64

package exechandler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"
	"github.com/fermata-io/fermata/worker/secrets"
)

// TestMetacharactersArriveLiterally: nothing between the payload and the program
// reads an argument.
func TestMetacharactersArriveLiterally(t *testing.T) {
	h := newHandler(t, Options{Env: []string{"VALUE"}})
	file := filepath.Join(t.TempDir(), "made")
	for _, text := range []string{
		"; touch F", "| touch F", "|| touch F", "& touch F", "&& touch F", "$(touch F)", "`touch F`", "\n touch F\n", "\r\n touch F", "> F", ">> F", "< F",
		"${IFS}touch${IFS}F", "$HOME", "~", "*", "?", "[a-z]", "{a,b}", "!!", "#", "' touch F '", `" touch F "`, `\`, `\\`, `\n`, "%s%n%x", "$'\\x41'", "(touch F)",
		"--help", "-", "--", "-c touch F", "=", "a=b", "\t", " ", "", "\x01\x1b[31m", "é€😀", "\u202etxt", strings.Repeat("A", 100_000), "|&touch F", "<(touch F)", "$((1+1))",
	} {
		text = strings.ReplaceAll(text, "F", file)
		task := task(payload.Exec{
			Argv: []string{"/bin/sh", "-c", `printf "<%s|%s|" "$1" "$VALUE"; cat; printf ">"`, "sh", text},
			Env:  map[string]string{"VALUE": text}, Stdin: text,
		})
		if err := h(t.Context(), task); err != nil {
			t.Fatalf("%.80q: %v", text, err)
		}
		whole := "<" + text + "|" + text + "|" + text + ">"
		if got, want := outputOf(t, task).Output, worker.Excerpt([]byte(whole[max(0, len(whole)-MaxExcerpt):]), MaxExcerpt); got != want {
			t.Errorf("%.80q became %.80q", text, got)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("one of them was run")
	}
	// argv[0] is a choice among programs and nothing else.
	for _, program := range []string{"", "sh", "./sh", "/bin/sh ", " /bin/sh", "/bin/sh\n", "//bin/sh", "/bin//sh", "/bin/./sh", "/bin/../bin/sh", "/bin/sh -c", "/proc/self/exe", "/BIN/SH", "/bin/sh;id", "-c"} {
		if err := h(t.Context(), task(payload.Exec{Argv: []string{program, "-c", "touch " + file}})); err == nil || !strings.Contains(err.Error(), "is not allowed on this worker") {
			t.Errorf("%q: %v", program, err)
		}
	}
}

// TestLinksToPrograms: a name that is a link runs what it led to when the worker
// started, and nothing that anybody can replace runs.
func TestLinksToPrograms(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "program")
	if err := os.Symlink("/bin/pwd", link); err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, Options{Allow: []string{link}})
	if err := h(t.Context(), task(payload.Exec{Argv: []string{link}})); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/sh", link); err != nil {
		t.Fatal(err)
	}
	if err := h(t.Context(), task(payload.Exec{Argv: []string{link, "-c", "exit 0"}})); err == nil || !strings.Contains(err.Error(), "link to another file") {
		t.Errorf("got %v", err)
	}

	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(open, "program")
	text, err := os.ReadFile("/bin/pwd")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	h = newHandler(t, Options{Allow: []string{program}})
	for _, of := range []string{program, open} {
		if err := os.Chmod(of, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := h(t.Context(), task(payload.Exec{Argv: []string{program}})); err == nil || !strings.Contains(err.Error(), of+" can be written by anybody") {
			t.Errorf("got %v", err)
		}
		if _, err := New(Options{Allow: []string{program}, AllowRoot: true}); err == nil {
			t.Error("taken at the start")
		}
		if err := os.Chmod(of, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := h(t.Context(), task(payload.Exec{Argv: []string{program}})); err != nil {
		t.Error(err)
	}
}

func TestDirectory(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"in", "in/deeper"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/", filepath.Join(base, "in", "out")); err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(base, "in")
	h := newHandler(t, Options{Dir: in})
	for dir, want := range map[string]string{
		"": in, in: in, in + "/deeper": in + "/deeper", in + "/deeper/..": in,
		base: "is outside of", in + "/..": "is outside of", "/": "is outside of", in + "/out": "is outside of", in + "/out/etc": "is outside of",
		in + "x": "is outside of", in + "/later": "no such file", in + "/deeper/../..": "is outside of",
	} {
		task := task(payload.Exec{Argv: []string{"/bin/pwd"}, Dir: dir})
		if err := h(t.Context(), task); err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", dir, err, want)
		} else if permanent := want == "is outside of"; err != nil && worker.IsPermanent(err) != permanent {
			t.Errorf("%q: permanent is %v, want %v", dir, !permanent, permanent)
		} else if err == nil && outputOf(t, task).Output != want+"\n" {
			t.Errorf("%q: runs in %q", dir, outputOf(t, task).Output)
		}
	}
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	l := Limits{CPU: 90*time.Second - 1, Memory: 1 << 30, Files: 77, Processes: 100_000, FileSize: 10 << 10}
	h := newHandler(t, Options{Limits: &l, Dir: dir})
	sh := func(script string) (*worker.Task, error) {
		task := task(payload.Exec{Argv: []string{"/bin/sh", "-c", script}})
		return task, h(t.Context(), task)
	}
	out, err := sh("ulimit -c; ulimit -H -t; ulimit -v; ulimit -n; ulimit -f; grep NoNewPrivs: /proc/self/status; readlink /proc/$$/fd/* | grep -c socket")
	const want = "0\n90\n1048576\n77\n20\nNoNewPrivs:\t1\n0\n"
	if got := outputOf(t, out).Output; got != want {
		t.Errorf("limits are %q, want %q; %v", got, want, err)
	}
	if _, err := sh("head -c 20000 /dev/zero > big; exit 0"); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "big")); err != nil || info.Size() != l.FileSize {
		t.Errorf("%v, %v", info, err)
	}
	hungry := newHandler(t, Options{Limits: &Limits{CPU: time.Second}})
	busy := task(payload.Exec{Argv: []string{"/bin/sh", "-c", "while :; do :; done"}})
	if err := hungry(t.Context(), busy); err == nil || !strings.Contains(err.Error(), "signal: ") {
		t.Errorf("got %v", err)
	}
}

// someone is a user of whom nothing else runs, and how many processes he may have
// so that n can be started. Without root it is the user of the tests.
func someone(t *testing.T, n int) (*User, int) {
	t.Helper()
	if os.Geteuid() == 0 {
		return &User{UID: 61_007, GID: 61_007}, n
	}
	return nil, n + len(threadsOf(t, uint32(os.Geteuid())))
}

func threadsOf(t *testing.T, uid uint32) (tasks []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if info, err := os.Stat(path); err == nil && info.Sys().(*syscall.Stat_t).Uid == uid {
			tasks = append(tasks, path)
		}
	}
	return tasks
}

// TestForkBomb: a program that forks until it cannot is bounded while it runs, and within a second of its end nothing
// of it is left.
func TestForkBomb(t *testing.T) {
	const most = 25
	user, processes := someone(t, most)
	h := newHandler(t, Options{User: user, Limits: &Limits{Processes: processes}, Grace: 50 * time.Millisecond})
	uid := uint32(os.Geteuid())
	if user != nil {
		uid = user.UID
	}
	before := threadsOf(t, uid)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := make(chan error, 1)
	bomb := task(payload.Exec{Argv: []string{"/bin/sh", "-c", `trap '' TERM; (while :; do sleep 600 & done); sleep 600`}})
	go func() { done <- h(ctx, bomb) }()
	redistest.Eventually(t, patience, "the bomb meets its bound", func() bool {
		n := len(threadsOf(t, uid))
		if n > processes {
			t.Fatalf("%d processes", n)
		}
		return n >= processes-2
	})
	cancel(worker.ErrTimeout)
	start := time.Now()
	if err := <-done; !errors.Is(err, worker.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	for _, task := range threadsOf(t, uid) {
		if !slices.Contains(before, task) && ofBomb(task) {
			t.Errorf("%s is left", task)
		}
	}
	t.Logf("gone after %v", time.Since(start))
}

// ofBomb says whether a thread is one of the bomb's program.
func ofBomb(task string) bool {
	environ, err := os.ReadFile(filepath.Join(task, "environ"))
	return err == nil && strings.Contains(string(environ), fmt.Sprintf("FERMATA_TOKEN=%d\x00", token))
}

func TestRoot(t *testing.T) {
	for name, test := range map[string]struct {
		o    Options
		euid int
		want string
	}{
		"root":                    {Options{}, 0, "would run as root"},
		"root, allowed":           {Options{AllowRoot: true}, 0, ""},
		"root as another":         {Options{User: &User{UID: 5}}, 0, ""},
		"root by name":            {Options{User: &User{UID: 0}}, 0, "would run as root"},
		"nobody":                  {Options{}, 65534, ""},
		"nobody as himself":       {Options{User: &User{UID: 65534}}, 65534, ""},
		"nobody as another":       {Options{User: &User{UID: 5}}, 65534, "only root"},
		"nobody as root, allowed": {Options{User: &User{UID: 0}, AllowRoot: true}, 65534, "only root"},
	} {
		if err := test.o.checkUser(test.euid); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

const canary = "CANARY-51b2e8-secret"

func TestSecrets(t *testing.T) {
	path := t.TempDir()
	for name, text := range map[string]string{"key": canary + "\n", "key.allow": "/bin/sh\n", "nul": "a\x00b", "nul.allow": "/bin/sh"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := secrets.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, Options{Secrets: dir, Env: []string{"KEY"}})
	sh := func(script string) payload.Exec {
		return payload.Exec{Argv: []string{"/bin/sh", "-c", script}, Env: map[string]string{"KEY": "${secret:key}"}, Stdin: "pw=${secret:key}\n"}
	}
	for name, test := range map[string]struct {
		payload payload.Exec
		err     string
		output  string
	}{
		"arrives":         {payload: sh(`read line; [ "$KEY" = CANARY-51b2e8-"secret" ] && [ "$line" = "pw=$KEY" ] && echo yes`), output: "yes\n"},
		"echoed":          {payload: sh(`cat; echo "$KEY"`), output: "pw=" + secrets.Mask + "\n" + secrets.Mask + "\n"},
		"a part of it":    {payload: sh(`printf %.10s "$KEY" | tail -c 4`), output: canary[6:10]}, // or whose output is that
		"across the cut":  {payload: sh(`echo "$KEY"; head -c 2036 /dev/zero | tr '\0' x`), output: secrets.Mask + "\n" + strings.Repeat("x", 2036)},
		"echoed, failing": {payload: sh(`echo "$KEY" >&2; exit 3`), err: "exit status 3", output: secrets.Mask + "\n"},
		"not in ps":       {payload: sh(`tr '\0' ' ' < /proc/$$/cmdline | grep -c "$KEY"; exit 0`), output: "0\n"},
		"another program": {payload: payload.Exec{Argv: []string{"/usr/bin/env"}, Env: map[string]string{"KEY": "${secret:key}"}}, err: "does not allow it to go to /usr/bin/env"},
		"by stdin":        {payload: payload.Exec{Argv: []string{"/bin/cat"}, Stdin: "${secret:key}"}, err: "does not allow it to go to /bin/cat"},
		"in argv":         {payload: payload.Exec{Argv: []string{"/bin/sh", "${secret:key}"}}, err: "may stand in env and stdin only"},
		"NUL":             {payload: payload.Exec{Argv: []string{"/bin/sh"}, Env: map[string]string{"KEY": "${secret:nul}"}}, err: "holds a NUL byte"},
	} {
		t.Run(name, func(t *testing.T) {
			task := task(test.payload)
			err := h(t.Context(), task)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got %v, want %q", err, test.err)
			}
			if got := outputOf(t, task).Output; got != test.output {
				t.Errorf("output is %q, want %q", got, test.output)
			}
			if told := fmt.Sprint(err, string(task.Output())); strings.Contains(told, "CANARY") {
				t.Errorf("told: %s", told)
			}
		})
	}
}

// TestPartsOfSecretsAreOrdinaryText: what an author takes for a part of a secret is shown alike whether that is right, at
// the end of an output, as all of it and where the excerpt cuts it. A secret is never shown in part.
func TestPartsOfSecretsAreOrdinaryText(t *testing.T) {
	path := t.TempDir()
	for name, text := range map[string]string{"key": canary, "key.allow": "/bin/sh"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := secrets.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	use := dir.For("/bin/sh")
	if _, err := use.Expand("${secret:key}"); err != nil {
		t.Fatal(err)
	}
	show := func(text string) string {
		w := tailBuffer{limit: tailLimit(use.Margin())}
		w.Write([]byte(text))
		var r report
		if err := json.Unmarshal(encodeReport(launch.Report{}, &w, use, 0), &r); err != nil {
			t.Fatal(err)
		}
		return r.Output
	}
	for k := 1; k < len(canary); k++ {
		for _, filler := range []int{0, MaxExcerpt - k - 1, MaxExcerpt - k, MaxExcerpt - 1, MaxExcerpt, 5 * MaxExcerpt} {
			fill := strings.Repeat("~", filler)
			for _, guess := range [][2]string{
				{canary[:k] + fill, canary[:k-1] + "!" + fill}, {canary[k:] + fill, "!" + canary[k+1:] + fill},
				{fill + canary[:k], fill + canary[:k-1] + "!"},
			} {
				right, wrong := show(guess[0]), show(guess[1])
				if len(right) != len(wrong) || strings.Contains(right, secrets.Mask) {
					t.Errorf("%d characters, %d others: a right guess became %.40q, a wrong one %.40q", k, filler, right, wrong)
				}
			}
		}
		for _, more := range []int{0, 5 * MaxExcerpt} {
			got := show(strings.Repeat("~", more) + canary + strings.Repeat("~", MaxExcerpt-k))
			if !strings.HasPrefix(strings.TrimLeft(got, "~"), secrets.Mask+"~") {
				t.Errorf("a secret, %d bytes of it in the excerpt, became %.40q", k, got)
			}
		}
	}
}

// FuzzPayload: any payload is refused or names a program, and no variable that is
// the worker's.
func FuzzPayload(f *testing.F) {
	for _, s := range []string{
		`{"argv":["/bin/sh","-c","x"],"env":{"A":"b"},"dir":"/","stdin":"x"}`, `{"argv":["/bin/sh"],"env":{"ld_preload":"x"}}`, `{"argv":[]}`, `{"argv":["\u0000"]}`,
		`{"argv":["/bin/sh"],"env":{"A=B":"c","":"","0":"1"}}`, `{"argv":["/bin/sh"],"env":{"A":"${secret:x}"}}`, `null`, `{"argv":null}`, `{"argv":["x"],"dir":"../x"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := payload.ParseExec(text)
		if err != nil {
			return
		}
		if len(p.Argv) == 0 || p.Dir != "" && !filepath.IsAbs(p.Dir) {
			t.Fatalf("%+v", p)
		}
		if err := expandSecrets(p, (*secrets.Dir)(nil).For(p.Argv[0])); err != nil {
			return
		}
		h := handler{Options: Options{Path: DefaultPath}}
		allowed, err := allowVariables(slices.DeleteFunc(slices.Collect(maps.Keys(p.Env)), func(name string) bool { return payload.IsReservedVariable(name) }), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := allowed.checkNames(p.Env); err != nil {
			return
		}
		seen := map[string]int{}
		for _, variable := range h.programEnvironment(p, task(payload.Exec{}), nil) {
			name, _, ok := strings.Cut(variable, "=")
			if !ok || name == "" || strings.ContainsRune(variable, 0) {
				t.Fatalf("%q", variable)
			}
			seen[name]++
			if seen[name] > 1 || strings.HasPrefix(strings.ToUpper(name), "LD_") {
				t.Fatalf("%q occurs %d times", name, seen[name])
			}
		}
	})
}
