//go:build unix

package signin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// checkDir refuses a directory that others may look into or own.
func checkDir(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is no directory", ErrUnsafe, path)
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return checkPrivate(path, info.Mode(), st.Uid, "0700")
}

// openPrivate opens a file that only its user may read or write, no link.
func openPrivate(path string, flag int) (*os.File, error) {
	file, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: %s is a link", ErrUnsafe, path)
	}
	if err != nil {
		return nil, err
	}
	if err := checkFile(path, file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func checkFile(path string, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return err
	}
	if !info.Mode().IsRegular() || st.Nlink > 1 {
		return fmt.Errorf("%w: %s is no file of its own", ErrUnsafe, path)
	}
	return checkPrivate(path, info.Mode(), st.Uid, "0600")
}

func checkPrivate(path string, mode fs.FileMode, owner uint32, want string) error {
	switch {
	case int(owner) != os.Geteuid():
		return fmt.Errorf("%w: %s belongs to another user", ErrUnsafe, path)
	case mode.Perm()&0o077 != 0:
		return fmt.Errorf("%w: others may use %s, which has mode %04o: set it to %s, or remove it and sign in again",
			ErrUnsafe, path, mode.Perm(), want)
	}
	return nil
}

// tryLock locks a file until it is closed, also by the end of the process.
func tryLock(file *os.File) (bool, error) {
	for {
		switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}
