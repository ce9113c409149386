//go:build unix

package node

import "syscall"

// maxOpenFiles is the process's limit of open files, including connections; 0: unknown.
func maxOpenFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur)
}
