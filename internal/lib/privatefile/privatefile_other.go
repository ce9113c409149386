//go:build !unix

package privatefile

import (
	"errors"
	"os"
)

// Supported reports whether this system has private files.
const Supported = false

var errSystem = errors.New("private files are not supported on this system")

// CheckDir fails on this system.
func CheckDir(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	return errSystem
}

// Open fails on this system.
func Open(string, int) (*os.File, error) { return nil, errSystem }

// TryLock fails on this system.
func TryLock(*os.File) (bool, error) { return false, errSystem }
