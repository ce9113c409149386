package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// command runs a command line that needs no node, and returns what it says.
func command(t *testing.T, in io.Reader, args ...string) (code int, said string) {
	t.Helper()
	var out bytes.Buffer
	code = runCommand(context.Background(), append([]string{"--address", "127.0.0.1:1", "--request-timeout", "1s"}, args...), standardStreams{in: in, out: &out, err: &out}, time.Now)
	return code, out.String()
}

const canary = "CANARY-of-another-file"

// links makes a directory of jobs with links of all kinds, and a file outside of it.
func links(t *testing.T) (dir string) {
	t.Helper()
	top := t.TempDir()
	dir = filepath.Join(top, "jobs")
	for _, d := range []string{dir, filepath.Join(dir, ".git"), filepath.Join(dir, "..v1")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"outside": canary + ": x\n", "jobs/.git/config": canary + "\n", "jobs/good.yaml": "id: a\nhandler: h\n", "jobs/..v1/mounted.yaml": "id: b\nspeed: 3\n",
	} {
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(top, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// TestFilesOfOtherUsers: a directory that others wrote leads to no file outside of it, waits
// for nobody, and has no error say what stands in another file.
func TestFilesOfOtherUsers(t *testing.T) {
	for name, c := range map[string]struct{ target, want string }{
		"outside":        {"../outside", "links may lead to regular files within"},
		"absolute":       {"/etc/passwd", "links may lead to regular files within"},
		"by a directory": {"../jobs/../outside", "links may lead to regular files within"},
		"hidden inside":  {".git/config", "what is here is not shown"},
		"a pipe":         {"../pipe", "is a pipe"},
		"a device":       {"/dev/zero", "is a device"},
		"a loop":         {"x.yaml", "too many levels of symbolic links"},
		"nothing":        {"missing", "no such file"},
		"mounted":        {"..v1/mounted.yaml", "x.yaml:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := links(t)
			link(t, c.target, filepath.Join(dir, "x.yaml"))
			code, said := command(t, nil, "diff", "-f", dir)
			if code == 0 || code == exitUnavailable || strings.Contains(said, "CANARY") || strings.Contains(said, "root:") || name != "mounted" && !strings.Contains(said, c.want) {
				t.Errorf("exit %d: %s", code, said)
			}
		})
	}
}

// TestLinksGivenByName: they are followed, and say nothing of what they lead to.
func TestLinksGivenByName(t *testing.T) {
	dir := links(t)
	link(t, "../outside", filepath.Join(dir, "x.yaml"))
	link(t, "..v1", filepath.Join(dir, "..data"))
	link(t, "..data/mounted.yaml", filepath.Join(dir, "mounted.yaml"))
	x, mounted := filepath.Join(dir, "x.yaml"), filepath.Join(dir, "mounted.yaml")
	for _, args := range [][]string{
		{"diff", "-f", x}, {"apply", "-f", x}, {"jobs", "create", "-f", x}, {"import", "-f", x}, {"import", "cronjob", x}, {"import", "crontab", x},
	} {
		if code, said := command(t, nil, args...); code == 0 || !strings.Contains(said, "a link leads to this file") || strings.Contains(said, "CANARY") {
			t.Errorf("%v: exit %d: %s", args, code, said)
		}
	}
	if code, said := command(t, nil, "diff", "-f", mounted); code != exitUsage || !strings.Contains(said, "mounted.yaml:2:1: speed: is unknown") {
		t.Errorf("a file of a mounted ConfigMap: exit %d: %s", code, said)
	}
}

// TestNonRegularFilesAreRefused by every command that reads files.
func TestNonRegularFilesAreRefused(t *testing.T) {
	pipe := filepath.Join(links(t), "../pipe")
	for _, path := range []string{pipe, "/dev/zero", "/dev/null"} {
		for _, args := range [][]string{
			{"diff", "-f", path}, {"apply", "-f", path}, {"jobs", "create", "-f", path}, {"import", "-f", path}, {"import", "cronjob", path}, {"import", "crontab", path},
			{"jobs", "create", "x", "--handler", "h", "--payload-file", path, "--every", "1m"},
		} {
			if code, said := command(t, nil, args...); code != exitUsage || !strings.Contains(said, "only regular files are read") {
				t.Errorf("%v: exit %d: %s", args, code, said)
			}
		}
	}
}

// TestStandardInputWithoutEndTimesOut: --request-timeout bounds it.
func TestStandardInputWithoutEndTimesOut(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	defer out.Close()
	for _, args := range [][]string{{"diff", "-f", "-"}, {"import", "cronjob"}, {"import", "crontab", "-"}} {
		if code, said := command(t, in, args...); code == 0 || !strings.Contains(said, "did not end within --request-timeout 1s") {
			t.Errorf("%v: exit %d: %s", args, code, said)
		}
	}
}

// TestAliasesDoNotFillTheMemory: a small file that stands for a thousand times its size is
// refused for what it stands for.
func TestAliasesDoNotFillTheMemory(t *testing.T) {
	text := "jobs:\n  a: &a\n    handler: h\n    payload_text: &t " + strings.Repeat("x", 1<<20) + "\n"
	for i := range 999 {
		text += fmt.Sprintf("  j%d: {handler: h, payload_text: *t}\n", i)
	}
	path := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"diff", "-f", path}, {"import", "cronjob", path, "--strict"}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, said := command(t, nil, args...)
		runtime.ReadMemStats(&after)
		if code == 0 || !strings.Contains(said, "stands for more than 32 MiB") || after.TotalAlloc-before.TotalAlloc > 100<<20 {
			t.Errorf("%v: exit %d, %d MiB: %.200s", args, code, (after.TotalAlloc-before.TotalAlloc)>>20, said)
		}
	}
}
