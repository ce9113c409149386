package secretfile

import (
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
)

const (
	writable fs.FileMode = 0o002 // by users who are neither the owner nor in the group
	readable fs.FileMode = 0o004
)

// hasModes is whether file modes are permissions on this operating system.
const hasModes = runtime.GOOS != "windows" && runtime.GOOS != "plan9"

// Read returns the content of a file of at most so many bytes. It refuses a file that any user may write or replace.
func Read(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkWriters(f, path); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: longer than %d bytes", path, most)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

func checkWriters(f *os.File, path string) error {
	if !hasModes {
		return nil
	}
	about, err := f.Stat()
	if err != nil {
		return err
	}
	if err := CheckMode(path, about); err != nil {
		return err
	}
	return checkPath(path)
}

// CheckMode refuses a regular file that any user may write. Others, such as pipes, are not stored on a disk.
func CheckMode(path string, about fs.FileInfo) error {
	if mode := about.Mode(); hasModes && mode.IsRegular() && mode.Perm()&writable != 0 {
		return fmt.Errorf("%s: any user may write it, as its mode is %04o; take that right away: chmod o-w", path,
			mode.Perm())
	}
	return nil
}

// Exposed reports whether the mode of a file lets any user of the host read it. It ignores the modes of directories,
// which may still prevent that.
func Exposed(path string) bool {
	about, err := os.Stat(path)
	return hasModes && err == nil && about.Mode().IsRegular() && about.Mode().Perm()&readable != 0
}

// WarnIfExposed logs that any user of the host may read a file with a secret.
func WarnIfExposed(logger *slog.Logger, path string) {
	if path != "" && Exposed(path) {
		logger.Warn("any user of this host may read a file with a secret: take that right away by chmod o-r, or "+
			"mount it with the mode 0440", "path", path)
	}
}
