package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestTokenIsOnStandardOutputOnly(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		var out, entry bytes.Buffer
		cmd := rootCommand(nil)
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

func TestExpiryOfTokens(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"": "0001-01-01T00:00:00Z", "2027-01-31T00:00:00Z": "2027-01-31T00:00:00Z", "2027-01-31T00:00:00+02:00": "2027-01-30T22:00:00Z",
		"2027-01-31": "2027-01-31T00:00:00Z", "90d": "2027-02-24T12:00:00Z", "12h": "2026-11-27T00:00:00Z",
		"0d": "", "-1h": "", "-1d": "", "2026-11-26": "", "tomorrow": "", "2027-13-01": "", "d": "", "90": "", "200000d": "", "2w": "2026-12-10T12:00:00Z", "1w1d": "2026-12-04T12:00:00Z",
	} {
		end, err := parseExpiry(text, now)
		if (err == nil) != (want != "") || err == nil && end.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v, want %q", text, end, err, want)
		}
	}
	var out, entry bytes.Buffer
	cmd := rootCommand(nil)
	cmd.SetArgs([]string{"token", "new", "ci", "--expires", "9000-01-31"})
	cmd.SetOut(&out)
	cmd.SetErr(&entry)
	if err := cmd.Execute(); err != nil || !strings.Contains(entry.String(), ", expires: 9000-01-31T00:00:00Z}") {
		t.Errorf("entry %q, %v", &entry, err)
	}
}
