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

// way is a walk from the root to a file, as the operating system makes it: through each directory
// and each link of a path.
type way struct {
	path  string // as it was given
	at    string // the directory that is reached, without links
	rest  []string
	links int
	// sticky is the directory that is reached if any user may write there, but replace only what
	// they own; nil: nobody may.
	sticky fs.FileInfo
}

// checkWay refuses a path on which any user may put something else in the place of a directory, of a
// link or of the file. In a sticky directory, such as /tmp, only the owner of an entry may,
// so there each has to be of this user, of root or of who owns the directory.
func checkWay(path string) error {
	full := path
	if !filepath.IsAbs(path) {
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		full = here + string(filepath.Separator) + path // not cleaned: a link may be before ".."
	}
	w := &way{path: path}
	if err := w.restart(full); err != nil {
		return err
	}
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		if err := w.step(name); err != nil {
			return err
		}
	}
	return nil
}

// restart begins at the root of an absolute path.
func (w *way) restart(full string) error {
	volume := filepath.VolumeName(full)
	w.at = volume + string(filepath.Separator)
	w.rest = append(split(full[len(volume):]), w.rest...)
	return w.enter(w.at)
}

func split(path string) []string { return strings.Split(path, string(filepath.Separator)) }

// step goes on by one name.
func (w *way) step(name string) error {
	switch name {
	case "", ".":
		return nil
	case "..":
		return w.enter(filepath.Dir(w.at))
	}
	next := filepath.Join(w.at, name)
	about, err := os.Lstat(next)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isOfProcess(w.at):
		w.rest = nil // a pipe or a file that is open, and has no name
		return nil
	case err != nil:
		return err
	case w.sticky != nil && !isTrusted(about, w.sticky):
		return fmt.Errorf("%s: any user may have put %s there, as the mode of %s is %04o, and it belongs to "+
			"neither this user nor root", w.path, next, w.at, w.sticky.Mode().Perm())
	case about.Mode()&fs.ModeSymlink != 0:
		return w.follow(next)
	case about.IsDir():
		return w.enter(next)
	}
	return nil
}

// follow goes on where a link leads.
func (w *way) follow(link string) error {
	w.links++
	if w.links > maxLinks {
		return fmt.Errorf("%s: leads over more than %d links", w.path, maxLinks)
	}
	target, err := os.Readlink(link)
	if err != nil {
		return err
	}
	if filepath.IsAbs(target) {
		return w.restart(target)
	}
	w.rest = append(split(target), w.rest...)
	return nil
}

// enter reaches a directory, unless any user may replace what is in it. Nobody may where it is mounted
// read-only, as the volumes of ConfigMaps are in Kubernetes: their root has the mode 0777, not sticky.
func (w *way) enter(dir string) error {
	about, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	mode := about.Mode()
	w.at, w.sticky = dir, nil
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

// isOfProcess reports whether a directory is one in which the operating system shows what a process
// has open.
func isOfProcess(dir string) bool { return strings.HasPrefix(dir, "/proc/") }
