package secretfile

import "syscall"

// stReadOnly is ST_RDONLY of statvfs(3).
const stReadOnly = 1

// isReadOnly reports whether a directory is on a mount that is read-only in this process's view of the file system.
func isReadOnly(dir string) bool {
	var about syscall.Statfs_t
	return syscall.Statfs(dir, &about) == nil && about.Flags&stReadOnly != 0
}
