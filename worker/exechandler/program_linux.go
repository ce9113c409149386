//go:build amd64 || arm64

package exechandler

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fermata-io/fermata/worker"
)

// allowedPrograms maps the allowed names to the files they led to when the worker started.
type allowedPrograms map[string]string

// maxLinks bounds the links on the path of a program.
const maxLinks = 40

// resolveAllowed resolves the links of all names. A missing program may be installed later if only root or the
// worker's user can do so.
func resolveAllowed(allow []string) (allowedPrograms, error) {
	p := allowedPrograms{}
	for _, name := range allow {
		file, err := resolveLinks(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("exec handler: %s: %w", name, err)
		}
		p[name] = file
	}
	return p, nil
}

// findFile returns the file to run for a name. Between this check and the start, only users who could also
// replace the worker can change the file.
func (p allowedPrograms) findFile(name string) (string, error) {
	pinned, ok := p[name]
	if !ok {
		return "", worker.Permanent(fmt.Errorf("payload: program %.200q is not allowed on this worker; "+
			"--exec-allow names programs, each by one absolute path", name))
	}
	file, err := resolveLinks(name)
	if err != nil {
		return "", fmt.Errorf("start: %w", err)
	}
	if pinned != "" && file != pinned {
		return "", fmt.Errorf("start: %s has become a link to another file since this worker started", name)
	}
	return file, nil
}

// resolveLinks resolves the links on the path of a program. It rejects files, links and directories that another
// user than root and the worker's user owns or could replace. It returns an empty path and fs.ErrNotExist if the
// file does not exist and no other user could create it.
func resolveLinks(name string) (string, error) {
	links, rest := 0, strings.Split(strings.TrimPrefix(name, "/"), "/")
	at := "/"
	sticky, err := checkDirectory(at)
	if err != nil {
		return "", err
	}
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0]) // also for "..", as no part of at is a link
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) && sticky:
			return "", fmt.Errorf("%s does not exist, and anybody can make it: %s can be written by others", next, at)
		case err != nil:
			return "", err
		}
		if err := checkOwner(next, info); err != nil {
			return "", err
		}
		rest = rest[1:]
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			links++
			if links > maxLinks {
				return "", fmt.Errorf("%s: too many links", name)
			}
			target, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(slices.DeleteFunc(strings.Split(target, "/"),
				func(part string) bool { return part == "" || part == "." }), rest...)
			sticky, err = checkDirectory(at)
			if err != nil {
				return "", err
			}
		case len(rest) > 0:
			at = next
			sticky, err = checkDirectory(at)
			if err != nil {
				return "", err
			}
		default:
			return next, checkProgram(next, info)
		}
	}
	return "", fmt.Errorf("%s is not a program", name)
}

// checkDirectory rejects a directory whose entries other users can replace. A directory with the sticky bit is
// accepted: other users can only add entries.
func checkDirectory(dir string) (sticky bool, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return false, err
	}
	writable := info.Mode()&0o022 != 0
	sticky = writable && info.Mode()&fs.ModeSticky != 0
	if writable && !sticky {
		return false, writableError(dir, info)
	}
	return sticky, checkOwner(dir, info)
}

func checkOwner(path string, info fs.FileInfo) error {
	owner := info.Sys().(*syscall.Stat_t).Uid
	if owner != 0 && owner != uint32(os.Geteuid()) {
		return fmt.Errorf("%s belongs to user %d; want root or the worker's user", path, owner)
	}
	return nil
}

func checkProgram(file string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not a program", file)
	case info.Mode()&0o022 != 0:
		return writableError(file, info)
	}
	return nil
}

func writableError(path string, info fs.FileInfo) error {
	if info.Mode()&0o002 != 0 {
		return fmt.Errorf("%s can be written by anybody", path)
	}
	return fmt.Errorf("%s can be written by its group", path)
}

// workingDirectory returns where a program runs: base or a directory below it, with links resolved; / without a
// base. Another directory is a permanent error, also if it does not exist. A directory missing in base is a
// temporary error.
func workingDirectory(base, asked string) (string, error) {
	if base == "" {
		if asked != "" && filepath.Clean(asked) != "/" {
			return "", worker.Permanent(fmt.Errorf("payload: dir %.200q is not allowed on this worker; --exec-dir "+
				"names where directories may be", asked))
		}
		return "/", nil
	}
	if asked == "" {
		asked = base
	}
	root, err := filepath.EvalSymlinks(base)
	if err != nil {
		return "", fmt.Errorf("start: directory: %w", err)
	}
	dir, err := filepath.EvalSymlinks(asked)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !isWithin(base, asked) && !isWithin(root, asked):
		return "", outsideError(asked, base)
	case err != nil:
		return "", fmt.Errorf("start: directory: %w", err)
	case !isWithin(root, dir):
		return "", outsideError(asked, base)
	}
	return dir, nil
}

// isWithin compares paths and follows no links.
func isWithin(base, path string) bool {
	rel, err := filepath.Rel(base, path)
	return err == nil && !slices.Contains(strings.Split(rel, string(filepath.Separator)), "..")
}

func outsideError(asked, base string) error {
	return worker.Permanent(fmt.Errorf("payload: dir %.200q is outside of %s, the --exec-dir of this worker", asked,
		base))
}
