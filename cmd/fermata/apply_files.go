package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/manifest"
)

// readSet reads files, directories and standard input.
func (a *app) readSet(names []string) (*manifest.Set, manifest.Faults, error) {
	all := &manifest.Set{}
	var faults manifest.Faults
	for i, name := range names {
		paths := []string{name}
		if name != "-" {
			var err error
			if paths, err = filesOf(name); err != nil {
				return nil, nil, usage(err)
			}
		} else if slices.Contains(names[:i], name) {
			return nil, nil, usagef("-f - can be given once")
		}
		for _, path := range paths {
			text, err := a.readFile(path)
			if err != nil {
				return nil, nil, err
			}
			set, wrong := manifest.Read(path, text, a.namespace)
			all.Add(set)
			faults = append(faults, wrong...)
		}
	}
	return all, faults, nil
}

// readFile reads as much as may be read, and a byte more.
func (a *app) readFile(path string) ([]byte, error) {
	in := a.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usage(err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, manifest.MaxFile+1))
	if err != nil {
		return nil, usage(err)
	}
	return text, nil
}

// endings are those of files that are read of a directory.
var endings = []string{".yaml", ".yml", ".json", ".jsonl"}

// filesOf lists a file, or those of a directory and below it, in order. What begins
// with a dot is left out: so are the versions that lie in a mounted ConfigMap.
func filesOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var paths []string
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != name && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !slices.Contains(endings, strings.ToLower(filepath.Ext(path))):
			return nil
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			target, err := os.Stat(path)
			if err != nil {
				return err
			}
			if target.IsDir() {
				return nil
			}
		} else if entry.IsDir() {
			return nil
		}
		paths = append(paths, path)
		return nil
	})
	return paths, err
}
