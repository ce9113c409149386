package licence

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// vendoredDir has the packages of npm that the bundle of the web console contains, which the binaries embed.
const vendoredDir = "console/vendor"

// Vendored returns the packages of npm that the binaries contain, classified. Their paths begin with "npm:".
func Vendored(root string) ([]Module, error) {
	manifests, err := filepath.Glob(filepath.Join(root, vendoredDir, "*", "package.json"))
	if err != nil {
		return nil, fmt.Errorf("licence: %w", err)
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
		modules = append(modules, Module{Path: "npm:" + p.Name, Version: p.Version, Files: files})
	}
	return modules, Classify(modules)
}
