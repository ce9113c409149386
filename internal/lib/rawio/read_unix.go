//go:build unix && (!linux || race || !(amd64 || arm64))

package rawio

import "syscall"

// Read reads once from a descriptor that does not block. A count of 0 without an error is the end.
func Read(fd uintptr, b []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
