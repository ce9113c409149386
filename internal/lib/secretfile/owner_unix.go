//go:build unix

package secretfile

import (
	"io/fs"
	"os"
	"syscall"
)

// isTrusted reports whether an entry of a directory belongs to this user, to root or to the
// owner of the directory.
func isTrusted(entry, dir fs.FileInfo) bool {
	owner, ok := ownerOf(entry)
	if !ok || owner == 0 || owner == os.Geteuid() {
		return true
	}
	master, ok := ownerOf(dir)
	return ok && owner == master
}

func ownerOf(about fs.FileInfo) (uid int, ok bool) {
	s, ok := about.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
