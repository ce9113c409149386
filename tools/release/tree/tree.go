// Package tree writes files as tar archives whose bytes depend on the files
// and one given time only: not on the machine, its clock, its users or the
// order in which the files were found.
package tree

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Entry is one file, or a directory if its path ends in a slash. Paths are
// relative and name every directory that the reader must find.
type Entry struct {
	Path  string
	Mode  int64 // permission bits, with sticky bit if any
	Owner int   // both user and group
	Data  []byte
}

// Write writes the entries in the order of their paths, all of the same age.
func Write(w io.Writer, entries []Entry, at time.Time) error {
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	out := tar.NewWriter(w)
	for i, e := range sorted {
		if i > 0 && sorted[i-1].Path == e.Path {
			return fmt.Errorf("tree: %s is there twice", e.Path)
		}
		if err := out.WriteHeader(header(e, at)); err != nil {
			return fmt.Errorf("tree: %s: %w", e.Path, err)
		}
		if _, err := out.Write(e.Data); err != nil {
			return fmt.Errorf("tree: %s: %w", e.Path, err)
		}
	}
	return out.Close()
}

// WriteGzip is Write, compressed.
func WriteGzip(w io.Writer, entries []Entry, at time.Time) error {
	zip, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := Write(zip, entries, at); err != nil {
		return err
	}
	return zip.Close()
}

func header(e Entry, at time.Time) *tar.Header {
	h := &tar.Header{
		Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: e.Path, Mode: e.Mode,
		Uid: e.Owner, Gid: e.Owner, Size: int64(len(e.Data)), ModTime: at.UTC().Truncate(time.Second),
	}
	if strings.HasSuffix(e.Path, "/") {
		h.Typeflag = tar.TypeDir
	}
	return h
}
