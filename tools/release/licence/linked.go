package licence

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Standard is the path that the standard library goes by, as in package URLs.
const Standard = "stdlib"

// Linked returns the modules that the commands of the module at root link on
// any of the platforms ("linux/amd64"), the standard library first, classified.
func Linked(root string, platforms []string) ([]Module, error) {
	dirs := map[place]map[string]bool{}
	for _, platform := range platforms {
		if err := addPackages(dirs, root, platform); err != nil {
			return nil, err
		}
	}
	standard, err := standardLibrary(root)
	if err != nil {
		return nil, err
	}
	modules := []Module{standard}
	for _, at := range slices.SortedFunc(maps.Keys(dirs), func(a, b place) int { return cmp.Compare(a.path, b.path) }) {
		m := Module{Path: at.path, Version: at.version}
		m.Files, err = licenceFiles(at.dir, dirs[at])
		if err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	return modules, Classify(modules)
}

// place is a module in the module cache.
type place struct{ path, version, dir string }

// addPackages adds the directories of the packages that the commands link.
func addPackages(dirs map[place]map[string]bool, root, platform string) error {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("licence: platform %q is not of the form os/arch", platform)
	}
	out, err := run(root, []string{"GOOS=" + system, "GOARCH=" + arch, "CGO_ENABLED=0"},
		"list", "-deps", "-json=Dir,Module,Standard", "./cmd/...")
	if err != nil {
		return err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("licence: go list: %w", err)
		case p.Standard || p.Module == nil || p.Module.Main:
			continue
		}
		at := place{p.Module.Path, p.Module.Version, p.Module.Dir}
		if dirs[at] == nil {
			dirs[at] = map[string]bool{}
		}
		dirs[at][p.Dir] = true
	}
}

func standardLibrary(root string) (Module, error) {
	out, err := run(root, nil, "env", "GOROOT")
	if err != nil {
		return Module{}, err
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "LICENSE"))
	if err != nil {
		return Module{}, fmt.Errorf("licence: of the standard library: %w", err)
	}
	return Module{Path: Standard, Files: []File{{Name: "LICENSE", Text: string(text)}}}, nil
}

func run(root string, env []string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr, cmd.Env = root, &stderr, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("licence: go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}

// licenceFiles reads the licences and notices in the packages' directories and
// in those above them, up to the module's.
func licenceFiles(module string, packages map[string]bool) ([]File, error) {
	seen, names := map[string]bool{}, map[string]bool{}
	for dir := range packages {
		for ; !seen[dir] && strings.HasPrefix(dir, module); dir = filepath.Dir(dir) {
			seen[dir] = true
			entries, err := os.ReadDir(dir)
			if err != nil {
				return nil, fmt.Errorf("licence: %w", err)
			}
			for _, e := range entries {
				if e.Type().IsRegular() && (isLicence(e.Name()) || isNotice(e.Name())) {
					names[filepath.Join(dir, e.Name())] = true
				}
			}
		}
	}
	var files []File
	for _, name := range slices.Sorted(maps.Keys(names)) {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("licence: %w", err)
		}
		relative, err := filepath.Rel(module, name)
		if err != nil {
			return nil, fmt.Errorf("licence: %w", err)
		}
		files = append(files, File{Name: filepath.ToSlash(relative), Text: string(text)})
	}
	return files, nil
}

func isLicence(name string) bool { return named(name, "LICENSE", "LICENCE", "COPYING", "UNLICENSE") }

func isNotice(name string) bool { return named(name, "NOTICE", "PATENTS") }

// named reports whether a file has one of the names, in any case, with or without a suffix after a dot or a dash, and
// is not source code.
func named(path string, names ...string) bool {
	base := strings.ToUpper(filepath.Base(path))
	if strings.HasSuffix(base, ".GO") {
		return false
	}
	head, _, _ := strings.Cut(strings.ReplaceAll(base, "-", "."), ".")
	return slices.Contains(names, head)
}
