// Package filewatch keeps the parsed content of files that may change while the process runs.
//
// Model. The owner of a [File] calls Reload from time to time, on a timer or before a use. A reload
// reads the file, and parses it if its text differs from the last one: files are compared by their
// content, because the links by which Kubernetes replaces mounted files, and some network file
// systems, change neither the time nor the size in a way that can be relied on.
//
// Invariants:
//
//  1. An invalid file changes nothing: the last valid content stays in use.
//  2. A [Status] logs once that a file is invalid, once for each different error, and once that it is
//     valid again, also if the previous text is back.
//  3. Files are read with the checks of package secretfile.
package filewatch

import (
	"bytes"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// File is a file with its parsed content. It is safe for concurrent use.
type File[T any] struct {
	path    string
	maxSize int
	parse   func(text []byte) (T, error)

	status  Status
	content atomic.Pointer[T]
	mu      sync.Mutex // of Reload
	text    []byte     // of content
}

// Open reads a file of at most maxSize bytes, which must be valid.
func Open[T any](path string, maxSize int, parse func(text []byte) (T, error)) (*File[T], error) {
	f := &File[T]{path: path, maxSize: maxSize, parse: parse}
	if _, err := f.readIfChanged(); err != nil {
		return nil, err
	}
	return f, nil
}

// Content is the content that was last valid.
func (f *File[T]) Content() T { return *f.content.Load() }

// Fault is the error of the file while it is invalid; nil while it is valid.
func (f *File[T]) Fault() error { return f.status.Fault() }

// Reload reads the file again and reports whether the content has changed. It logs changes of validity, under a name
// of the file such as "access file". A nil logger discards.
func (f *File[T]) Reload(logger *slog.Logger, name string) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, err := f.readIfChanged()
	f.status.Update(err, logger, name, f.path)
	return changed
}

func (f *File[T]) readIfChanged() (changed bool, err error) {
	text, err := secretfile.Read(f.path, f.maxSize)
	if err != nil || f.content.Load() != nil && bytes.Equal(text, f.text) {
		return false, err
	}
	content, err := f.parse(text)
	if err != nil {
		return false, err
	}
	f.text = text
	f.content.Store(&content)
	return true, nil
}

// Status remembers whether a file, or files that are valid together, can be used. The zero value is valid.
type Status struct{ fault atomic.Pointer[error] }

// Fault is the error while the file is invalid; nil while it is valid.
func (s *Status) Fault() error {
	if fault := s.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// Update records the result of a reload, and logs it if it differs from the previous one. A nil logger discards.
func (s *Status) Update(err error, logger *slog.Logger, name, path string) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if err == nil {
		if s.fault.Swap(nil) != nil {
			logger.Info(name+" is valid again", "path", path)
		}
		return
	}
	if before := s.fault.Swap(&err); before == nil || (*before).Error() != err.Error() {
		logger.Error(name+" is invalid, keeping the last one", "path", path, "error", err)
	}
}
