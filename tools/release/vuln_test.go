package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scan runs scripts/vuln.sh on a binary.
func scan(t *testing.T, db, mode, binary string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../scripts/vuln.sh", "-mode=binary", binary)
	cmd.Env = append(os.Environ(), "VULN_DB="+db, "VULN="+mode)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// database writes a vulnerability database as served by vuln.go.dev, with one
// entry: all versions of a module that this command links.
func database(t *testing.T, module string) string {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "index/db.json"), `{"modified":"2026-01-01T00:00:00Z"}`)
	put(t, filepath.Join(dir, "index/modules.json"), `[{"path":"`+module+`","vulns":[{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]}]`)
	put(t, filepath.Join(dir, "index/vulns.json"), `[{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]`)
	put(t, filepath.Join(dir, "ID/GO-2026-0001.json"), `{"schema_version":"1.3.1","id":"GO-2026-0001",
		"modified":"2026-01-01T00:00:00Z","published":"2026-01-01T00:00:00Z","summary":"seeded","details":"seeded",
		"affected":[{"package":{"name":"`+module+`","ecosystem":"Go"},
			"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],"ecosystem_specific":{}}],
		"database_specific":{"url":"https://example.org/GO-2026-0001","review_status":"REVIEWED"}}`)
	return "file://" + dir
}

func TestVulnerabilityScan(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "release")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	vulnerable := database(t, "github.com/google/go-containerregistry")
	for _, tt := range []struct {
		name, db, mode string
		fails          bool
		says           string
	}{
		{"a vulnerable module fails", vulnerable, "", true, "GO-2026-0001"},
		{"one that is not linked does not", database(t, "example.org/elsewhere"), "must", false, "No vulnerabilities found"},
		{"without a database it says so", gone.URL, "", false, "NOT CHECKED"},
		{"and fails where it gates", gone.URL, "must", true, "NOT CHECKED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := scan(t, tt.db, tt.mode, binary)
			if (err != nil) != tt.fails || !strings.Contains(out, tt.says) {
				t.Errorf("error %v, output without %q:\n%s", err, tt.says, out)
			}
		})
	}
}
