//go:build amd64 || arm64

package launch

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// emptying bounds the wait for a control group to become empty.
const emptying = time.Second

// killCgroup kills what is in the control group of the program, if there is one.
func (s *supervisor) killCgroup() {
	if s.cgroupKill >= 0 {
		_, _ = unix.Write(s.cgroupKill, []byte("1")) // what it leaves is found as a child
	}
}

func (s *supervisor) removeCgroup() {
	if s.cgroup != "" {
		_ = RemoveCgroup(s.cgroup) // the worker tries again
	}
}

// RemoveCgroup kills what is in a control group and removes it.
func RemoveCgroup(dir string) error {
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for end := time.Now().Add(emptying); ; <-pause.C {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		err := removeEmpty(dir)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// removeEmpty removes a control group and those below it, which a program of root can
// have made.
func removeEmpty(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	below, _ := os.ReadDir(dir) // what was read counts
	for _, d := range below {
		if d.IsDir() {
			_ = removeEmpty(filepath.Join(dir, d.Name())) // the next attempt tells
		}
	}
	return unix.Rmdir(dir)
}
