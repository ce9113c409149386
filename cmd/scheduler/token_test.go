package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestTokenIsOnStandardOutputOnly(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		var out, entry bytes.Buffer
		cmd := command(nil)
		cmd.SetArgs([]string{"token", "new", "ci"})
		cmd.SetOut(&out)
		cmd.SetErr(&entry)
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		token := strings.TrimSpace(out.String())
		if !strings.HasPrefix(token, "fermata_") || strings.Contains(token, "\n") || seen[token] {
			t.Errorf("token %q", token)
		}
		seen[token] = true
		if strings.Contains(entry.String(), token) || !strings.Contains(entry.String(), "{name: ci, sha256: ") {
			t.Errorf("entry %q", entry.String())
		}
	}
}
