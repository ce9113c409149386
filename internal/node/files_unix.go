//go:build unix

package node

import "syscall"

// openFiles is how many files the process may have open, connections included; 0 if
// that is not known.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur)
}
