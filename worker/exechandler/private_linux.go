//go:build amd64 || arm64

package exechandler

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// warnOfReadable logs the worker's private files that programs can read.
func (o Options) warnOfReadable() {
	as := User{uint32(os.Geteuid()), uint32(os.Getegid())}
	if o.User != nil {
		as = *o.User
	}
	var readable []string
	for _, path := range o.Private {
		readable = append(readable, as.readableFiles(path)...)
	}
	if len(readable) > 0 {
		o.Logger.Warn("programs can read private files of this worker", slog.Int("uid", int(as.UID)),
			slog.Int("files", len(readable)), slog.String("first", readable[0]))
	}
}

// readableFiles returns the files at a path, or in that directory, that the user can read by their modes.
func (u User) readableFiles(path string) (files []string) {
	info, err := os.Stat(path)
	if err != nil {
		return nil // the reader of the file reports it
	}
	if !info.IsDir() {
		if u.mayRead(path) {
			files = append(files, path)
		}
		return files
	}
	entries, _ := os.ReadDir(path) // what was read counts
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		// What may be done with a secret is no secret.
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && !strings.HasSuffix(file, ".allow") &&
			u.mayRead(file) {
			files = append(files, file)
		}
	}
	return files
}

// mayRead reports whether the modes of a file and of its directories let the user read it.
func (u User) mayRead(path string) bool {
	file, err := filepath.EvalSymlinks(path)
	if err == nil {
		file, err = filepath.Abs(file)
	}
	if err != nil {
		return false
	}
	if !u.hasPermission(file, 0o4) {
		return false
	}
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if !u.hasPermission(dir, 0o1) {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// hasPermission reports whether the mode has the bit for the user.
func (u User) hasPermission(path string, bit fs.FileMode) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	owner := info.Sys().(*syscall.Stat_t)
	switch {
	case u.UID == 0:
		return true
	case owner.Uid == u.UID:
		bit <<= 6
	case owner.Gid == u.GID:
		bit <<= 3
	}
	return info.Mode()&bit != 0
}
