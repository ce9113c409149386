//go:build amd64 || arm64

package launch

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupEmptyTimeout bounds the wait for a control group to become empty.
const cgroupEmptyTimeout = time.Second

// killCgroup kills the processes in the program's control group, if there is one.
func (s *supervisor) killCgroup() {
	if s.cgroupKill >= 0 {
		_, _ = unix.Write(s.cgroupKill, []byte("1")) // survivors are found as children
	}
}

func (s *supervisor) removeCgroup() {
	if s.cgroup != "" {
		_ = RemoveCgroup(s.cgroup) // the worker tries again
	}
}

// RemoveCgroup kills the processes in a control group and removes it.
func RemoveCgroup(dir string) error {
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for end := time.Now().Add(cgroupEmptyTimeout); ; <-pause.C {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		err := removeEmpty(dir)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// removeEmpty removes a control group and the groups below it, which a program of root can have created.
func removeEmpty(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	below, _ := os.ReadDir(dir) // what was read counts
	for _, d := range below {
		if d.IsDir() {
			_ = removeEmpty(filepath.Join(dir, d.Name())) // the removal of dir reports the error
		}
	}
	return unix.Rmdir(dir)
}
