//go:build !unix

package signin

import (
	"errors"
	"os"
)

var errSystem = errors.New("sessions are not kept on this system: use --token-file")

func checkDir(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	return errSystem
}

func openPrivate(string, int) (*os.File, error) { return nil, errSystem }

func tryLock(*os.File) (bool, error) { return false, errSystem }
