package acceptance

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	// earlierCommit is the last one of main whose nodes know only schemas before 5, and get permits one by one.
	earlierCommit = "391ee23f8f34b1f58cbe6937e6389ba486257082"
	// earlierSchema is the latest schema that its nodes know.
	earlierSchema = 4
	// earlierVersion is what its nodes call themselves here.
	earlierVersion = "v0.0.1"
)

// sourceRoot is the root of the module, from where tests run.
const sourceRoot = "../../.."

// builtPaths are what commands are built from.
var builtPaths = []string{"go.mod", "go.sum", "client", "cmd", "console", "internal", "proto", "worker"}

// earlierBinary builds the scheduler of earlierCommit. Packages that are the same in both builds come from Go's cache.
var earlierBinary = sync.OnceValues(func() (string, error) {
	replace, err := replaceByCommit(earlierCommit)
	if err != nil {
		return "", err
	}
	file, err := writeOverlay("earlier", replace)
	if err != nil {
		return "", err
	}
	return buildCommand("scheduler", "scheduler-earlier", "-overlay", file, "-ldflags",
		"-X main.buildVersion="+earlierVersion)
})

// earlierPath returns the path of the scheduler of the earlier commit. A copy of the sources without its history
// cannot build it.
func earlierPath(t *testing.T) string {
	t.Helper()
	_, err := runGit("cat-file", "-e", earlierCommit+"^{commit}")
	if err != nil {
		t.Skipf("this copy of the sources does not have the history of the project: %v", err)
	}
	path, err := earlierBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// replaceByCommit returns what replaces the present sources by those of a commit, for [writeOverlay].
func replaceByCommit(commit string) (map[string]string, error) {
	root, err := filepath.Abs(sourceRoot)
	if err != nil {
		return nil, err
	}
	changes, err := listPaths("diff", "--name-status", "--no-renames", "-z", commit)
	if err != nil {
		return nil, err
	}
	added, err := listPaths("ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	args := []string{"archive", "--format=tar", commit, "--"}
	for pair := range slices.Chunk(changes, 2) {
		letter, path := pair[0], pair[1]
		if letter == "A" {
			added = append(added, path)
		} else if isBuilt(path) {
			args = append(args, path)
		}
	}
	archive, err := runGit(args...)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(buildDir, "sources-"+commit)
	names, err := unpackFiles(dir, archive)
	if err != nil {
		return nil, err
	}
	replace := map[string]string{}
	for _, name := range added {
		replace[filepath.Join(root, name)] = "" // the commit does not have it
	}
	for _, name := range names {
		replace[filepath.Join(root, name)] = filepath.Join(dir, name)
	}
	return replace, nil
}

// unpackFiles writes the files of an archive below a directory and returns their names.
func unpackFiles(dir string, archive []byte) (names []string, err error) {
	files := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, header.Name)
		err = os.MkdirAll(filepath.Dir(path), 0o700)
		if err != nil {
			return nil, err
		}
		err = os.WriteFile(path, text, 0o600)
		if err != nil {
			return nil, err
		}
		names = append(names, header.Name)
	}
}

// isBuilt reports whether a file can be a part of a command.
func isBuilt(path string) bool {
	return !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "/testdata/")
}

// listPaths returns what a command of git lists about builtPaths, which ends each name with a zero byte.
func listPaths(args ...string) ([]string, error) {
	out, err := runGit(append(append(args, "--"), builtPaths...)...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// runGit runs git at the root of the module and returns what it prints.
func runGit(args ...string) ([]byte, error) {
	cmd := exec.Command("git", append([]string{"-C", sourceRoot}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w\n%s", args[0], err, errs.Bytes())
	}
	return out, nil
}
