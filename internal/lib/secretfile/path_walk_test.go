package secretfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes directories and links below a directory of this test: "a/b 0755", "a/link -> ../c".
func tree(t *testing.T, lines ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		var name, target string
		var mode uint32
		if n, _ := fmt.Sscanf(line, "%s -> %s", &name, &target); n == 2 {
			if err := os.Symlink(strings.ReplaceAll(target, "ROOT", root), filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := fmt.Sscanf(line, "%s %o", &name, &mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, name)
		defer func() {
			m := os.FileMode(mode & 0o777)
			if mode&0o1000 != 0 {
				m |= os.ModeSticky
			}
			if err := os.Chmod(path, m); err != nil {
				t.Fatal(err)
			}
		}()
	}
	return root
}

// TestEveryStepOfAPathIsChecked: a directory anywhere on the way in which any user may replace the next
// name, also on the way of a link, or before a "..".
func TestEveryStepOfAPathIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		tree []string
		file string // where it lies
		path string // by which it is read
		want string // part of the error; "" is none
	}{
		"safe":                           {[]string{"a 0755", "a/b 0755", "a/b/c 0755"}, "a/b/c", "a/b/c", ""},
		"a directory far above":          {[]string{"a 0777", "a/b 0755", "a/b/c 0755"}, "a/b/c", "a/b/c", "the mode of ROOT/a is 0777"},
		"group":                          {[]string{"a 0775", "a/b 0755"}, "a/b", "a/b", ""},
		"sticky":                         {[]string{"a 1777", "a/b 0755"}, "a/b", "a/b", ""},
		"a link in an open directory":    {[]string{"open 0777", "safe 0755", "open/link -> ROOT/safe"}, "safe", "open/link", "the mode of ROOT/open is 0777"},
		"a link over an open directory":  {[]string{"open 0777", "safe 0755", "in -> open/on", "open/on -> ../safe"}, "safe", "in", "the mode of ROOT/open is 0777"},
		"a link to below an open one":    {[]string{"open 0777", "open/safe 0755", "in -> ROOT/open/safe"}, "open/safe", "in", "the mode of ROOT/open is 0777"},
		"a safe chain of links":          {[]string{"x 0755", "y 0755", "y/z 0755", "x/one -> ../y/two", "y/two -> z"}, "y/z", "x/one", ""},
		"back from an open directory":    {[]string{"open 0777", "safe 0755"}, "safe", "open/../safe", "the mode of ROOT/open is 0777"},
		"up from where a link leads":     {[]string{"a 0755", "a/b 0755", "l -> a/b"}, "a", "l/..", ""},
		"up to an open directory":        {[]string{"open 0777", "open/b 0755", "l -> open/b"}, "open", "l/..", "the mode of ROOT/open is 0777"},
		"the name of the file is a link": {[]string{"open 0777", "safe 0755", "safe/secret -> ../open/secret"}, "open", "safe", "the mode of ROOT/open is 0777"},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, c.tree...)
			write(t, filepath.Join(root, c.file), 0o600)
			t.Chdir(root)
			for _, base := range []string{root + "/", ""} {
				text, err := Read(base+c.path+"/secret", 100)
				want := strings.ReplaceAll(c.want, "ROOT", root)
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && string(text) != "open sesame" {
					t.Errorf("%q: %q, %v; want %q", base, text, err, want)
				}
			}
		})
	}
}

// TestStickyDirectoriesHoldFilesOfTheirOwners: in one, any user may have put the file there first.
func TestStickyDirectoriesHoldFilesOfTheirOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("files of other users take root to make: this tries those of this user alone")
	}
	for name, c := range map[string]struct {
		directory, file int
		want            bool
	}{
		"this user's": {os.Geteuid(), os.Geteuid(), true}, "somebody else's": {0, 65533, false}, "root's": {65533, 0, true}, "that of the directory's owner": {65533, 65533, true},
	} {
		if os.Geteuid() != 0 && c.file != os.Geteuid() {
			continue
		}
		root := tree(t, "tmp 1777", "tmp/dir 0755")
		dir := filepath.Join(root, "tmp")
		direct, below := write(t, dir, 0o600), write(t, filepath.Join(dir, "dir"), 0o600)
		link := filepath.Join(dir, "link")
		if err := os.Symlink(below, link); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{direct, filepath.Join(dir, "dir"), link} {
			if err := os.Lchown(path, c.file, 0); err != nil && os.Geteuid() == 0 {
				t.Fatal(err)
			}
		}
		if err := os.Lchown(dir, c.directory, 0); err != nil && os.Geteuid() == 0 {
			t.Fatal(err)
		}
		for _, path := range []string{direct, below, link} {
			if _, err := Read(path, 100); (err == nil) != c.want {
				t.Errorf("%s, %s: %v", name, path, err)
			}
		}
	}
}

// TestPipesAndLoops: what a shell passes as /dev/fd has no path, and links may lead round and round.
func TestPipesAndLoops(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("open sesame"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if text, err := Read(fmt.Sprintf("/dev/fd/%d", r.Fd()), 100); err != nil || string(text) != "open sesame" {
		t.Errorf("a pipe: %q, %v", text, err)
	}
	f, err := os.Open(write(t, tree(t), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := Read(fmt.Sprintf("/dev/fd/%d", f.Fd()), 100); err != nil || string(text) != "open sesame" {
		t.Errorf("an open file: %q, %v", text, err)
	}
	root := tree(t, "a -> b", "b -> a")
	if err := checkPath(filepath.Join(root, "a")); err == nil || !strings.Contains(err.Error(), "more than 40 links") {
		t.Errorf("a loop: %v", err)
	}
}
