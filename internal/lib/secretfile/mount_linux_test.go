package secretfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestConfigMapsOfKubernetes: the kubelet makes the root of a volume 0777 without the sticky bit, and mounts
// it read-only; the same directory on a mount that is written to is refused.
func TestConfigMapsOfKubernetes(t *testing.T) {
	mount := t.TempDir()
	version := filepath.Join(mount, "..2026_11_25")
	if err := os.Mkdir(version, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, version, 0o644)
	for link, target := range map[string]string{"..data": "..2026_11_25", "secret": "..data/secret"} {
		if err := os.Symlink(target, filepath.Join(mount, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(mount, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(mount, "secret")
	if _, err := Read(path, 100); err == nil {
		t.Error("read from a directory in which any user may write")
	}
	t.Cleanup(func() { onReadOnlyMount = isReadOnly })
	onReadOnlyMount = func(dir string) bool { return dir == mount }
	if _, err := Read(path, 100); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(version, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, 100); err == nil {
		t.Error("read from a directory of another mount in which any user may write")
	}
}

// TestReadOnlyMountsAreKnown compares with the mounts that the kernel lists.
func TestReadOnlyMountsAreKnown(t *testing.T) {
	if isReadOnly(t.TempDir()) {
		t.Error("a directory for temporary files is taken for read-only")
	}
	list, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	top := map[string]bool{} // whether those that no other mount covers are read-only
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		at := fields[4]
		for earlier := range top {
			if strings.HasPrefix(earlier+"/", at+"/") {
				delete(top, earlier)
			}
		}
		top[at] = slices.Contains(strings.Split(fields[5], ","), "ro")
	}
	for at, want := range top {
		if about, err := os.Stat(at); err == nil && about.IsDir() && want && !isReadOnly(at) {
			t.Errorf("%s is mounted read-only, and taken for writable", at)
		}
	}
}
