package secretfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many links a path may lead over, as on Linux.
const maxLinks = 40

// onReadOnlyMount is a variable for tests, which cannot mount.
var onReadOnlyMount = isReadOnly

// pathWalk resolves a path from the root as the operating system does, through each directory and each link.
type pathWalk struct {
	path  string // as the caller passed it
	dir   string // current directory, without links
	rest  []string
	links int
	// sticky is the current directory if any user may write to it, but may replace only own files; nil: it is not
	// such a directory.
	sticky fs.FileInfo
}

// checkPath refuses a path if any user may replace a directory, a link or the file of it. In a sticky directory, such
// as /tmp, only the owner of an entry may replace it, so each entry there has to belong to this user, to root or to the
// owner of the directory.
func checkPath(path string) error {
	full := path
	if !filepath.IsAbs(path) {
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		full = here + string(filepath.Separator) + path // not cleaned: a link may be before ".."
	}
	w := &pathWalk{path: path}
	if err := w.walkFromRoot(full); err != nil {
		return err
	}
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		if err := w.walkName(name); err != nil {
			return err
		}
	}
	return nil
}

// walkFromRoot continues at the root with an absolute path.
func (w *pathWalk) walkFromRoot(full string) error {
	volume := filepath.VolumeName(full)
	w.dir = volume + string(filepath.Separator)
	w.rest = append(splitPath(full[len(volume):]), w.rest...)
	return w.enterDir(w.dir)
}

func splitPath(path string) []string { return strings.Split(path, string(filepath.Separator)) }

// walkName resolves the next name of the path.
func (w *pathWalk) walkName(name string) error {
	switch name {
	case "", ".":
		return nil
	case "..":
		return w.enterDir(filepath.Dir(w.dir))
	}
	next := filepath.Join(w.dir, name)
	about, err := os.Lstat(next)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isOfProcess(w.dir):
		w.rest = nil // a pipe or a file that is open, and has no name
		return nil
	case err != nil:
		return err
	case w.sticky != nil && !isTrusted(about, w.sticky):
		return fmt.Errorf("%s: any user may have put %s there, as the mode of %s is %04o, and it belongs to "+
			"neither this user nor root", w.path, next, w.dir, w.sticky.Mode().Perm())
	case about.Mode()&fs.ModeSymlink != 0:
		return w.followLink(next)
	case about.IsDir():
		return w.enterDir(next)
	}
	return nil
}

// followLink continues at the target of a link.
func (w *pathWalk) followLink(link string) error {
	w.links++
	if w.links > maxLinks {
		return fmt.Errorf("%s: leads over more than %d links", w.path, maxLinks)
	}
	target, err := os.Readlink(link)
	if err != nil {
		return err
	}
	if filepath.IsAbs(target) {
		return w.walkFromRoot(target)
	}
	w.rest = append(splitPath(target), w.rest...)
	return nil
}

// enterDir makes a directory the current one. It refuses a directory whose entries any user may replace, unless it is
// on a read-only mount, as volumes of ConfigMaps are in Kubernetes: their root has the mode 0777 and is not sticky.
func (w *pathWalk) enterDir(dir string) error {
	about, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	mode := about.Mode()
	w.dir, w.sticky = dir, nil
	switch {
	case mode.Perm()&writable == 0:
	case mode&fs.ModeSticky != 0:
		w.sticky = about
	case onReadOnlyMount(dir):
	default:
		return fmt.Errorf("%s: any user may replace it, as the mode of %s is %04o; take that right away: chmod o-w",
			w.path, dir, mode.Perm())
	}
	return nil
}

// isOfProcess reports whether the operating system lists the open files of a process in a directory.
func isOfProcess(dir string) bool { return strings.HasPrefix(dir, "/proc/") }
