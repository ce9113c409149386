// Package privatefile opens and replaces files that only their user may read or write, such as sessions.
package privatefile

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
)

// ErrUnsafe is the error of a file or directory that others could read or write.
var ErrUnsafe = errors.New("refused")

// Replace writes a file in one step: readers see the old content or the new one. The file has mode 0600.
func Replace(path string, content []byte) error {
	temporary := path + "." + rand.Text()
	out, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	err = errors.Join(err, out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir stores the names of a directory, where the system can.
func syncDir(path string) error {
	if !Supported {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
