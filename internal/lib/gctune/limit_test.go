package gctune

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestGroupLimit: the least limit counts of a group and those around it, of both versions.
func TestGroupLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"none":             {nil, math.MaxInt64},
		"no limit":         {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, math.MaxInt64},
		"of a container":   {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "134217728\n"}, 128 << 20},
		"path of the host": {map[string]string{"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/memory.max": "1048576\n"}, 1 << 20},
		"around": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
			"sys/fs/cgroup/a/memory.max": "2097152\n"}, 2 << 20},
		"version 1": {map[string]string{"proc/self/cgroup": "4:memory:/a\n3:cpu:/\n0::/\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "3145728\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 3 << 20},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroupLimit(root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestReserveFitsItsLimit: what is left for the heap, beside the reserve, is below the limit.
func TestReserveFitsItsLimit(t *testing.T) {
	for limit, want := range map[int64]int{64 << 20: 8 << 20, 128 << 20: 16 << 20, 1 << 30: BallastSize, math.MaxInt64: BallastSize} {
		reserve, most := fitLimit(BallastSize, limit)
		if reserve != want || (most == 0) != (limit == math.MaxInt64) || most-int64(reserve) >= limit {
			t.Errorf("limit %d: reserve %d, want %d, heap %d", limit, reserve, want, most-int64(reserve))
		}
	}
}
