//go:build unix

package privatefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Supported reports whether this system has private files.
const Supported = true

// CheckDir refuses a directory that others may look into or own.
func CheckDir(path string) error {
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

// Open opens a file that only its user may read or write, no link. It creates the file if flag has os.O_CREATE.
func Open(path string, flag int) (*os.File, error) {
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
		return fmt.Errorf("%w: others may use %s, which has mode %04o: set it to %s by chmod, or remove it",
			ErrUnsafe, path, mode.Perm(), want)
	}
	return nil
}

// TryLock locks a file until it is closed, also by the end of the process.
func TryLock(file *os.File) (bool, error) {
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
