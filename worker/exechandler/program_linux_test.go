//go:build amd64 || arm64

package exechandler

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/worker"
)

// TestProgramsThatOthersCanReplace: by the mode or the owner of the file, of a directory or of a
// link on the way.
func TestProgramsThatOthersCanReplace(t *testing.T) {
	text, err := os.ReadFile("/bin/pwd")
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ base, dir, file, link string }
	root := os.Geteuid() == 0
	for name, test := range map[string]struct {
		change func(p place) error
		of     func(p place) string
		want   string // empty: runs
	}{
		"nothing":                      {func(place) error { return nil }, func(p place) string { return p.file }, ""},
		"by a link":                    {func(place) error { return nil }, func(p place) string { return p.link }, ""},
		"file for its group":           {func(p place) error { return os.Chmod(p.file, 0o775) }, func(p place) string { return p.file }, "can be written by its group"},
		"file for anybody":             {func(p place) error { return os.Chmod(p.file, 0o757) }, func(p place) string { return p.file }, "can be written by anybody"},
		"directory for its group":      {func(p place) error { return os.Chmod(p.dir, 0o775) }, func(p place) string { return p.file }, "can be written by its group"},
		"directory above":              {func(p place) error { return os.Chmod(p.base, 0o777) }, func(p place) string { return p.file }, "can be written by anybody"},
		"sticky directory":             {func(p place) error { return os.Chmod(p.dir, 0o777|os.ModeSticky) }, func(p place) string { return p.file }, ""},
		"directory behind a link":      {func(p place) error { return os.Chmod(p.dir, 0o777) }, func(p place) string { return p.link }, "can be written by anybody"},
		"missing in a sticky one":      {func(p place) error { return os.Chmod(p.dir, 0o777|os.ModeSticky) }, func(p place) string { return p.dir + "/missing" }, "anybody can make it"},
		"missing below a sticky one":   {func(p place) error { return os.Chmod(p.dir, 0o777|os.ModeSticky) }, func(p place) string { return p.dir + "/missing/program" }, "anybody can make it"},
		"link to nothing":              {func(p place) error { return os.Symlink(p.dir+"/missing", p.base+"/dangling") }, func(p place) string { return p.base + "/dangling" }, "no such file"},
		"link to nothing in such one":  {func(p place) error { return os.Symlink("/tmp/fermata-missing", p.base+"/dangling") }, func(p place) string { return p.base + "/dangling" }, "anybody can make it"},
		"link to itself":               {func(p place) error { return os.Symlink("loop", p.base+"/loop") }, func(p place) string { return p.base + "/loop" }, "too many links"},
		"link up and down":             {func(p place) error { return os.Symlink("../"+filepath.Base(p.base)+"/./dir//program", p.base+"/up") }, func(p place) string { return p.base + "/up" }, ""},
		"link to a directory":          {func(p place) error { return os.Symlink("dir", p.base+"/d") }, func(p place) string { return p.base + "/d" }, "is not a program"},
		"file of another user":         {func(p place) error { return chown(root, p.file) }, func(p place) string { return p.file }, "belongs to user 61015"},
		"directory of another user":    {func(p place) error { return chown(root, p.dir) }, func(p place) string { return p.file }, "belongs to user 61015"},
		"link of another user":         {func(p place) error { return chown(root, p.link) }, func(p place) string { return p.link }, "belongs to user 61015"},
		"file of another, by its link": {func(p place) error { return chown(root, p.file) }, func(p place) string { return p.link }, "belongs to user 61015"},
	} {
		if !root && strings.Contains(test.want, "belongs to") {
			continue // files of others are for root to make
		}
		t.Run(name, func(t *testing.T) {
			base := openDir(t)
			p := place{base, base + "/dir", base + "/dir/program", base + "/link"}
			if err := os.Mkdir(p.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p.file, text, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(p.file, p.link); err != nil {
				t.Fatal(err)
			}
			file := test.of(p)
			before, err := New(Options{Allow: []string{file}, AllowRoot: true}) // the worker starts before the change
			if err != nil {
				t.Fatal(err)
			}
			if err := test.change(p); err != nil {
				t.Fatal(err)
			}
			_, err = New(Options{Allow: []string{file}, AllowRoot: true})
			if refused := test.want != "" && test.want != "no such file"; (err != nil) != refused || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("at the start: got %v, want %q", err, test.want)
			}
			err = before(t.Context(), task(payload.Exec{Argv: []string{file}}))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("at an attempt: got %v, want %q", err, test.want)
			}
		})
	}
}

func chown(root bool, path string) error {
	if !root {
		return nil
	}
	return os.Lchown(path, 61_015, 61_015)
}

// TestProgramInstalledLater: into a directory where only the worker's user can put it.
func TestProgramInstalledLater(t *testing.T) {
	file := filepath.Join(openDir(t), "program")
	h := newHandler(t, Options{Allow: []string{file}})
	if err := h(t.Context(), task(payload.Exec{Argv: []string{file}})); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho \"$0\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	one := task(payload.Exec{Argv: []string{file}})
	if err := h(t.Context(), one); err != nil || outputOf(t, one).Output != file+"\n" {
		t.Errorf("got %v, %q", err, outputOf(t, one).Output)
	}
}

// TestPayloadsCannotChooseADirectory: unless the worker says where, and HOME is never their choice.
func TestPayloadsCannotChooseADirectory(t *testing.T) {
	dir := t.TempDir()
	show := payload.Exec{Argv: []string{"/bin/sh", "-c", `echo "$HOME $(pwd)"`}}
	for _, test := range []struct {
		o    Options
		dir  string
		want string // empty: refused
	}{
		{Options{}, "", "/nonexistent /"},
		{Options{}, "/", "/nonexistent /"},
		{Options{}, dir, ""},
		{Options{}, "/tmp", ""},
		{Options{}, "/proc/self/root", ""},
		{Options{Dir: dir}, dir, "/nonexistent " + dir},
		{Options{Dir: dir, Home: "/srv/home"}, dir, "/srv/home " + dir},
	} {
		show.Dir = test.dir
		one := task(show)
		err := newHandler(t, test.o)(t.Context(), one)
		if test.want == "" && (!worker.IsPermanent(err) || !strings.Contains(err.Error(), "--exec-dir")) {
			t.Errorf("%q: got %v", test.dir, err)
		}
		if got := strings.TrimSpace(outputOf(t, one).Output); got != test.want {
			t.Errorf("%q: got %q, want %q; %v", test.dir, got, test.want, err)
		}
	}
}
