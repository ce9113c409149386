package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// product makes a module with all commands, as if built for two platforms,
// and its licences listed. The commands do nothing: what is packed is under test.
func product(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	put(t, filepath.Join(root, "go.mod"), "module example.org/product\ngo 1.26.0\n")
	put(t, filepath.Join(root, "LICENSE"), "free")
	putChart(t, root)
	putConsole(t, root)
	for _, name := range commands {
		put(t, filepath.Join(root, "cmd", name, "main.go"),
			"package main\n\nimport \"example.org/product/console\"\n\nfunc main() { print(console.Bundle) }\n")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		binary := buildOnce(t, root, arch)
		for _, name := range commands {
			put(t, filepath.Join(root, "dist/bin/linux_"+arch, name), string(binary))
		}
	}
	must(t, root, "licences")
	return root
}

// built holds a command of the product by its platform. All products have the same sources.
var built = map[string][]byte{}

// buildOnce returns a command of the product at root, which the first product's sources made.
func buildOnce(t *testing.T, root, arch string) []byte {
	t.Helper()
	if built[arch] != nil {
		return built[arch]
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", "built", "./cmd/fermata")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	binary, err := os.ReadFile(filepath.Join(root, "built"))
	if err != nil {
		t.Fatal(err)
	}
	built[arch] = binary
	return binary
}

// putConsole makes a web console of one package of npm, and the lock file of a package that is on npm.
func putConsole(t *testing.T, root string) {
	t.Helper()
	text, err := os.ReadFile("../../console/vendor/preact/LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	hash := "sha512-" + strings.Repeat("A", 86) + "=="
	put(t, filepath.Join(root, bundle), "console.log('the web console')\n")
	put(t, filepath.Join(root, "console/embed.go"), "package console\n\nimport _ \"embed\"\n\n//go:embed dist/console.js\nvar Bundle string\n")
	put(t, filepath.Join(root, "console/vendor/shown/LICENSE"), string(text))
	put(t, filepath.Join(root, "console/vendor/shown/package.json"), `{"name":"@ui/shown","version":"3.2.1"}`)
	put(t, filepath.Join(root, "console/vendor/README.md"), "| `shown` | @ui/shown 3.2.1 | `"+hash+"` |\n")
	put(t, filepath.Join(root, npmLock), `{"name":"@example/product","lockfileVersion":3,"packages":{"":{"dependencies":{"used":"^1.0.0"}},
		"node_modules/used":{"version":"1.0.1","license":"MIT","integrity":"`+hash+`"}}}`)
}

func putChart(t *testing.T, root string) {
	t.Helper()
	put(t, filepath.Join(root, chartDir, "Chart.yaml"), "apiVersion: v2\nname: fermata\nversion: 0.1.0\nappVersion: v0.1.0\nannotations:\n  fermata.io/image-digest: \"\"\n")
	put(t, filepath.Join(root, chartDir, "templates/tests/try.yaml"), "kind: Pod\n")
	put(t, filepath.Join(root, chartDir, ".helmignore"), ".git\n")
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func release(t *testing.T, root, task string, more ...string) error {
	t.Helper()
	return run(t.Context(), slices.Concat([]string{task, "-root", root, "-dist", filepath.Join(root, "dist"),
		"-version", "v1.2.3", "-epoch", "1700000000", "-platforms", "linux/amd64"}, more))
}

func must(t *testing.T, root, task string, more ...string) {
	t.Helper()
	if err := release(t, root, task, more...); err != nil {
		t.Fatalf("%s: %v", task, err)
	}
}

// contents lists the files below a directory with their hashes.
func contents(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all = append(all, fmt.Sprintf("%x  %s", sha256.Sum256(data), strings.TrimPrefix(path, dir+"/")))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPackingTwiceGivesTheSameFiles(t *testing.T) {
	root := product(t)
	pack := func() []string {
		for _, dir := range []string{"release", "image"} {
			if err := os.RemoveAll(filepath.Join(root, "dist", dir)); err != nil {
				t.Fatal(err)
			}
		}
		for _, task := range []string{"sbom", "archives", "image"} {
			must(t, root, task, "-platforms", "linux/amd64 linux/arm64")
		}
		return contents(t, filepath.Join(root, "dist"))
	}
	one, two := pack(), pack()
	if !slices.Equal(one, two) {
		t.Errorf("first\n%s\nthen\n%s", strings.Join(one, "\n"), strings.Join(two, "\n"))
	}
	for _, want := range []string{
		"release/fermata-1.2.3.tgz", "release/fermata_v1.2.3_linux_amd64.tar.gz", "release/fermata_v1.2.3_linux_arm64.cdx.json",
		"release/fermata_v1.2.3_npm.cdx.json", "release/SHA256SUMS",
		"image/oci/index.json", "image/fermata_v1.2.3_linux_arm64.docker.tar", "image/digest",
	} {
		if !slices.ContainsFunc(one, func(s string) bool { return strings.HasSuffix(s, "  "+want) }) {
			t.Errorf("%s is missing", want)
		}
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = filepath.Join(root, "dist/release")
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 7 {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
}

// unpacked are the files of an archive, with their modes.
func unpacked(t *testing.T, archive []byte) (files map[string]string, modes map[string]int64) {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files, modes = map[string]string{}, map[string]int64{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], modes[h.Name] = string(data), h.Mode
	}
}

func TestArchiveHoldsCommandsAndLicences(t *testing.T) {
	root := product(t)
	must(t, root, "sbom")
	must(t, root, "archives")
	archive, err := os.ReadFile(filepath.Join(root, "dist/release/fermata_v1.2.3_linux_amd64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	_, modes := unpacked(t, archive)
	want := map[string]int64{}
	for name, mode := range map[string]int64{"": 0o755, "LICENSE": 0o644, thirdParty: 0o644, "fermata": 0o755, "gateway": 0o755, "scheduler": 0o755, "worker": 0o755} {
		want["fermata_v1.2.3_linux_amd64/"+name] = mode
	}
	if !maps.Equal(modes, want) {
		t.Errorf("files %v, want %v", modes, want)
	}
}

// TestChartIsOfTheRelease: the chart that is packed runs the image of the release.
func TestChartIsOfTheRelease(t *testing.T) {
	root := t.TempDir()
	putChart(t, root)
	for version, c := range map[string]struct{ file, version string }{
		"v1.2.3":                 {"fermata-1.2.3.tgz", "1.2.3"},
		"v1.2.3-4-g1a2d10f4c7b2": {"fermata-1.2.3-4-g1a2d10f4c7b2.tgz", "1.2.3-4-g1a2d10f4c7b2"},
		"012345678901-dirty":     {"fermata-0.0.0-at-012345678901-dirty.tgz", "0.0.0-at-012345678901-dirty"},
		"dev":                    {"fermata-0.0.0-at-dev.tgz", "0.0.0-at-dev"},
	} {
		name, archive, err := settings{root: root, version: version}.chart("sha256:d")
		if err != nil || name != c.file {
			t.Fatalf("%s is %s (%v), want %s", version, name, err, c.file)
		}
		files, _ := unpacked(t, archive)
		want := map[string]string{
			"fermata/Chart.yaml":               fmt.Sprintf("apiVersion: v2\nname: fermata\nversion: %q\nappVersion: %q\nannotations:\n  fermata.io/image-digest: \"sha256:d\"\n", c.version, version),
			"fermata/templates/tests/try.yaml": "kind: Pod\n",
		}
		if !maps.Equal(files, want) {
			t.Errorf("%s: %q, want %q", version, files, want)
		}
	}
	put(t, filepath.Join(root, chartDir, "Chart.yaml"), "name: fermata\nversion: 0.1.0\nannotations:\n  fermata.io/image-digest: \"\"\n")
	if _, _, err := (settings{root: root, version: "v1.2.3"}).chart(""); err == nil || !strings.Contains(err.Error(), "appVersion") {
		t.Errorf("a chart without an image: %v", err)
	}
}

func TestImageIsPushedOnRequest(t *testing.T) {
	root := product(t)
	var pushed atomic.Int32
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Path == "/v2/fermata/manifests/v1.2.3" {
			pushed.Add(1)
		}
		store.ServeHTTP(w, r)
	}))
	defer server.Close()
	name := strings.TrimPrefix(server.URL, "http://") + "/fermata"
	must(t, root, "image", "-image", name)
	if pushed.Load() != 0 {
		t.Error("pushed unasked")
	}
	must(t, root, "image", "-image", name, "-push")
	if pushed.Load() != 1 {
		t.Errorf("pushed %d times", pushed.Load())
	}
}

func TestLicencesThatAreNotCurrent(t *testing.T) {
	root := product(t)
	must(t, root, "licences", "-check")
	put(t, filepath.Join(root, thirdParty), "older")
	if err := release(t, root, "licences", "-check"); err == nil || !strings.Contains(err.Error(), "make licences") {
		t.Errorf("error %v, want one that says what to do", err)
	}
}

func TestWrongUse(t *testing.T) {
	empty := t.TempDir()
	put(t, filepath.Join(empty, "LICENSE"), "free")
	put(t, filepath.Join(empty, thirdParty), "all free")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "say one of"},
		{"no such task", []string{"publish"}, "say one of"},
		{"no version", []string{"image"}, "-version"},
		{"a date", []string{"image", "-version", "v1", "-epoch", "today"}, "-epoch"},
		{"a word too many", []string{"image", "-version", "v1", "linux"}, "unexpected"},
		{"nothing built", []string{"archives", "-version", "v1", "-dist", empty, "-root", empty}, "make binaries"},
		{"no such platform", []string{"licences", "-platforms", "linux"}, "os/arch"},
		{"an image for macOS", []string{"image", "-version", "v1", "-platforms", "darwin/arm64"}, "Linux"},
		{"a version that is no tag", []string{"image", "-version", "v1+2"}, "tag"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := run(t.Context(), tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestBillsListPackagesOfNPM: those in the bundle of the web console are in the bill of each platform, and those that the
// package on npm needs in a bill of its own.
func TestBillsListPackagesOfNPM(t *testing.T) {
	root := product(t)
	must(t, root, "sbom")
	for name, want := range map[string]string{
		"fermata_v1.2.3_linux_amd64.cdx.json": "pkg:npm/%40ui/shown@3.2.1", "fermata_v1.2.3_npm.cdx.json": "pkg:npm/used@1.0.1",
	} {
		text, err := os.ReadFile(filepath.Join(root, "dist/release", name))
		if err != nil || !strings.Contains(string(text), `"purl": "`+want+`"`) {
			t.Errorf("%s does not list %s (%v):\n%s", name, want, err, text)
		}
	}
	put(t, filepath.Join(root, bundle), "console.log('built later')\n")
	if err := release(t, root, "sbom"); err == nil || !strings.Contains(err.Error(), "no binary embeds") {
		t.Errorf("binaries with an older bundle: error %v", err)
	}
	putConsole(t, root)
	if err := os.Remove(filepath.Join(root, npmLock)); err != nil {
		t.Fatal(err)
	}
	if err := release(t, root, "sbom"); err == nil || !strings.Contains(err.Error(), npmLock) {
		t.Errorf("without a lock file: error %v", err)
	}
}
