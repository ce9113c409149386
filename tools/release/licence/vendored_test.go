package licence

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVendoredPackages: the packages that the console contains are listed, and one without a licence is refused.
func TestVendoredPackages(t *testing.T) {
	modules, err := Vendored("../../..")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range modules {
		found[m.Path] = m.Expression()
		if !strings.HasPrefix(m.Integrity, "sha512-") {
			t.Errorf("%s has the hash %q", m.Path, m.Integrity)
		}
	}
	for _, name := range []string{"npm:preact", "npm:@preact/signals", "npm:@preact/signals-core", "npm:js-yaml"} {
		if found[name] != "MIT" {
			t.Errorf("%s is under %q", name, found[name])
		}
	}
	dir := filepath.Join(t.TempDir(), vendoredDir, "free")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"name":"free","version":"1.0.0"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSuffix(dir, filepath.Join(vendoredDir, "free"))
	list := filepath.Join(root, vendoredDir, "README.md")
	for _, row := range []string{"", "| `free` | free 0.9.0 | `sha512-AA==` |\n"} {
		if err := os.WriteFile(list, []byte(row), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Vendored(root); err == nil || !strings.Contains(err.Error(), "no hash of free 1.0.0") {
			t.Errorf("a package without a hash: error %v", err)
		}
	}
	if err := os.WriteFile(list, []byte("| `free` | free 1.0.0 | `sha512-AA==` |\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Vendored(root); err == nil || !strings.Contains(err.Error(), "npm:free") {
		t.Errorf("a package without a licence: error %v", err)
	}
}
