package exechandler

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// programs are those that may run, with the files that they were when the worker
// started.
type programs map[string]string

// pin follows the links of all names. A program that is missing may come later.
func pin(allow []string) (programs, error) {
	p := programs{}
	for _, name := range allow {
		file, err := filepath.EvalSymlinks(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("exec handler: %s: %w", name, err)
		}
		if err == nil {
			if err := guarded(file); err != nil {
				return nil, fmt.Errorf("exec handler: %s: %w", name, err)
			}
		}
		p[name] = file
	}
	return p, nil
}

// find returns the file to run for a name.
func (p programs) find(name string) (string, error) {
	pinned, ok := p[name]
	if !ok {
		return "", fmt.Errorf("program %.200q is not allowed on this worker", name)
	}
	file, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", fmt.Errorf("start: %w", err)
	}
	if pinned != "" && file != pinned {
		return "", fmt.Errorf("start: %s has become a link to another file since this worker started", name)
	}
	if err := guarded(file); err != nil {
		return "", fmt.Errorf("start: %w", err)
	}
	return file, nil
}

// guarded refuses a file that anybody could put something else in the place of.
func guarded(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not a program", file)
	}
	for at := file; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("%s can be written by anybody", at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// directory is where a program runs: in base or below, links followed.
func directory(base, asked string) (string, error) {
	if asked == "" {
		asked = base
	}
	root, err := filepath.EvalSymlinks(base)
	if err != nil {
		return "", fmt.Errorf("start: directory: %w", err)
	}
	dir, err := filepath.EvalSymlinks(asked)
	if err != nil {
		return "", fmt.Errorf("start: directory: %w", err)
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil || slices.Contains(strings.Split(rel, string(filepath.Separator)), "..") {
		return "", fmt.Errorf("directory %.200q is outside of %s", asked, base)
	}
	return dir, nil
}
