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
	}
	for _, name := range []string{"npm:preact", "npm:@preact/signals", "npm:@preact/signals-core"} {
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
	if _, err := Vendored(root); err == nil || !strings.Contains(err.Error(), "npm:free") {
		t.Errorf("a package without a licence: error %v", err)
	}
}
