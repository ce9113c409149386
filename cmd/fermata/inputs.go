package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/fermata-io/fermata/internal/cli/manifest"
)

// inputFile is a file that a command reads; "-" is standard input.
type inputFile struct {
	path string
	// under is the given directory, which links must not leave; empty if the file itself was given.
	under string
	// linked: a link leads to it, so that its text is not for error messages.
	linked bool
}

// newInput is a file that was given by itself.
func (a *app) newInput(path string) inputFile {
	return inputFile{path: path, linked: path != "-" && isLinked(path)}
}

// openFile opens a regular file and does not block on anything else.
func (i inputFile) openFile() (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK // otherwise opening a pipe waits for its writer
	info, err := os.Stat(i.path)                   // a missing file is reported when it is opened
	if err == nil && !info.Mode().IsRegular() {
		return nil, usageErrorf("%s: is %s; only regular files are read, and standard input as -", i.path,
			fileKind(info.Mode()))
	}
	var f *os.File
	if i.under == "" {
		f, err = os.OpenFile(i.path, flags, 0)
	} else {
		f, err = openUnder(i.under, i.path, flags)
	}
	if err != nil {
		return nil, newUsageError(err)
	}
	info, err = f.Stat()
	if err == nil && info.Mode().IsRegular() {
		return f, nil
	}
	f.Close()
	return nil, usageErrorf("%s: is no regular file", i.path)
}

func openUnder(dir, path string, flags int) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	rest, err := filepath.Rel(dir, path)
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(rest, flags, 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%s: %w: links may lead to regular files within %s only", path, errors.Unwrap(err), dir)
	}
	return f, err
}

func fileKind(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&os.ModeNamedPipe != 0:
		return "a pipe"
	case m&os.ModeDevice != 0:
		return "a device"
	case m&os.ModeSocket != 0:
		return "a socket"
	}
	return "no file"
}

// isLinked reports whether a link leads to a file, by its own name or by one of the
// directories of a relative path. A link to a file of the same name below its directory is
// none: mounted ConfigMaps consist of these.
func isLinked(path string) bool {
	parts := []string{path}
	if !filepath.IsAbs(path) {
		for dir := filepath.Dir(filepath.Clean(path)); dir != "." && dir != ".." &&
			!strings.HasSuffix(dir, "/.."); dir = filepath.Dir(dir) {
			parts = append(parts, dir)
		}
	}
	linked := false
	for _, part := range parts {
		info, err := os.Lstat(part)
		linked = linked || err != nil || info.Mode()&os.ModeSymlink != 0
	}
	if !linked {
		return false
	}
	target, err := filepath.EvalSymlinks(path)
	dir, dirErr := filepath.EvalSymlinks(filepath.Dir(path))
	info, lstatErr := os.Lstat(filepath.Dir(path))
	if err != nil || dirErr != nil || lstatErr != nil || info.Mode()&os.ModeSymlink != 0 {
		return true
	}
	return filepath.Base(target) != filepath.Base(path) || !strings.HasPrefix(target, dir+string(filepath.Separator))
}

// readInputFile reads as much as may be read, and a byte more, within --request-timeout.
func (a *app) readInputFile(i inputFile) ([]byte, error) {
	in := a.in
	if i.path != "-" {
		f, err := i.openFile()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(a.withReadTimeout(i.path, in), manifest.MaxFile+1))
	if err != nil {
		return nil, newUsageError(err)
	}
	return text, nil
}

// withReadTimeout bounds the time that reading takes by --request-timeout, unless a person types.
func (a *app) withReadTimeout(name string, in io.Reader) io.Reader {
	if a.timeout <= 0 {
		return in
	}
	if file, ok := a.inputWithNotice().(*os.File); ok && name == "-" && term.IsTerminal(int(file.Fd())) {
		return in
	}
	if name == "-" {
		name = "standard input"
	}
	return &timedReader{in: in, name: name, limit: a.timeout, end: time.Now().Add(a.timeout)}
}

type timedReader struct {
	in    io.Reader
	name  string
	limit time.Duration
	end   time.Time
}

func (t *timedReader) Read(to []byte) (int, error) {
	type answer struct {
		n   int
		err error
	}
	// A read that is blocked at the timeout continues in its own buffer until the process ends.
	buffer, done := make([]byte, len(to)), make(chan answer, 1)
	go func() {
		n, err := t.in.Read(buffer)
		done <- answer{n, err}
	}()
	late := time.NewTimer(time.Until(t.end))
	defer late.Stop()
	select {
	case a := <-done:
		return copy(to, buffer[:a.n]), a.err
	case <-late.C:
		return 0, fmt.Errorf("%s did not end within --request-timeout %v", t.name, t.limit)
	}
}

// withoutContent removes file content from the faults of a linked file: they give positions only.
func withoutContent(i inputFile, faults manifest.FileErrors) manifest.FileErrors {
	if !i.linked {
		return faults
	}
	for n := range faults {
		faults[n].Column, faults[n].Field, faults[n].Text = 0, "", "is wrong; what is here is not shown, as a link "+
			"leads to this file"
	}
	return faults
}
