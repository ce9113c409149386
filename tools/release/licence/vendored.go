package licence

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// vendoredDir has the packages of npm that the bundle of the web console contains, which the binaries embed.
const vendoredDir = "console/vendor"

// NPM begins the path of a package of npm.
const NPM = "npm:"

// integrities finds the rows of the list of packages: name, version and hash of the archive.
var integrities = regexp.MustCompile("(?m)^\\| `[^`]+` \\| (\\S+) (\\S+) \\| `(sha512-[^`]+)` \\|$")

// Vendored returns the packages of npm that the binaries contain, classified. The README beside them has the hashes of
// their archives.
func Vendored(root string) ([]Module, error) {
	manifests, err := filepath.Glob(filepath.Join(root, vendoredDir, "*", "package.json"))
	if err != nil {
		return nil, fmt.Errorf("licence: %w", err)
	}
	if len(manifests) == 0 {
		return nil, nil
	}
	list, err := os.ReadFile(filepath.Join(root, vendoredDir, "README.md"))
	if err != nil {
		return nil, fmt.Errorf("licence: %w", err)
	}
	hashes := map[string]string{}
	for _, row := range integrities.FindAllStringSubmatch(string(list), -1) {
		hashes[row[1]+"@"+row[2]] = row[3]
	}
	var modules []Module
	for _, manifest := range manifests {
		text, err := os.ReadFile(manifest)
		if err != nil {
			return nil, fmt.Errorf("licence: %w", err)
		}
		var p struct{ Name, Version string }
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("licence: %s: %w", manifest, err)
		}
		dir := filepath.Dir(manifest)
		files, err := licenceFiles(dir, map[string]bool{dir: true})
		if err != nil {
			return nil, err
		}
		integrity := hashes[p.Name+"@"+p.Version]
		if integrity == "" {
			return nil, fmt.Errorf("licence: %s: the README beside it has no hash of %s %s", dir, p.Name, p.Version)
		}
		modules = append(modules, Module{Path: NPM + p.Name, Version: p.Version, Integrity: integrity, Files: files})
	}
	return modules, Classify(modules)
}
