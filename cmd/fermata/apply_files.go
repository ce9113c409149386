package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/cli/manifest"
)

// readSet reads files, directories and standard input.
func (a *app) readSet(names []string) (*manifest.Content, manifest.FileErrors, error) {
	all, budget := &manifest.Content{}, &manifest.Budget{}
	var faults manifest.FileErrors
	for i, name := range names {
		inputs := []inputFile{a.newInput(name)}
		if name != "-" {
			var err error
			inputs, err = a.filesOf(name)
			if err != nil {
				return nil, nil, newUsageError(err)
			}
		} else if slices.Contains(names[:i], name) {
			return nil, nil, usageErrorf("-f - can be given once")
		}
		for _, in := range inputs {
			text, err := a.readInputFile(in)
			if err != nil {
				return nil, nil, err
			}
			set, wrong := manifest.ReadWithin(budget, in.path, text, a.namespace)
			all.Add(set)
			faults = append(faults, withoutContent(in, wrong)...)
		}
	}
	return all, faults, nil
}

// manifestExtensions are the extensions of the files that are read in a directory.
var manifestExtensions = []string{".yaml", ".yml", ".json", ".jsonl"}

// filesOf lists a file, or those of a directory and below it, in order. What begins
// with a dot is left out: so are the versions that lie in a mounted ConfigMap.
func (a *app) filesOf(name string) ([]inputFile, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []inputFile{a.newInput(name)}, nil
	}
	// A walk does not follow a link, and the directory itself may be given by one.
	name, err = filepath.EvalSymlinks(name)
	if err != nil {
		return nil, err
	}
	var inputs []inputFile
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != name && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !slices.Contains(manifestExtensions, strings.ToLower(filepath.Ext(path))):
			return nil
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			if target, err := os.Stat(path); err == nil && target.IsDir() {
				return nil
			}
		} else if entry.IsDir() {
			return nil
		}
		inputs = append(inputs, inputFile{path: path, under: name, linked: isLinked(path)})
		return nil
	})
	return inputs, err
}
