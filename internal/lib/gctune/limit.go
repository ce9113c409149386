package gctune

import (
	"bytes"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// cgroupLimit is the memory limit in bytes of the control groups of this process, read from files below root;
// [math.MaxInt64] without a limit.
func cgroupLimit(root string) int64 {
	text, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return math.MaxInt64
	}
	limit := int64(math.MaxInt64)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch parts[1] {
		case "": // version 2
			limit = min(limit, smallestLimit(path.Join(root, "sys/fs/cgroup"), parts[2], "memory.max"))
		case "memory":
			limit = min(limit, smallestLimit(path.Join(root, "sys/fs/cgroup/memory"), parts[2], "memory.limit_in_bytes"))
		}
	}
	return limit
}

// smallestLimit is the smallest limit of a group and of the groups around it. In a container the path may be that
// of the host. The container sees only its root.
func smallestLimit(mount, group, file string) int64 {
	limit := int64(math.MaxInt64)
	for {
		if text, err := os.ReadFile(path.Join(mount, group, file)); err == nil {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
		}
		if group == "/" || group == "." || group == "" {
			return limit
		}
		group = path.Dir(group)
	}
}
