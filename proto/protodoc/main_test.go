package main

import (
	"os"
	"strings"
	"testing"
)

// TestEveryFieldOfAJobIsDescribed: the page has no row without a meaning, default or bound.
func TestEveryFieldOfAJobIsDescribed(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/job.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		rows++
		if len(cells) < 3 || strings.Trim(cells[2], " |") == "" {
			t.Errorf("a field has no comment in job.proto: %s", line)
		}
	}
	if rows < 100 {
		t.Errorf("%d fields: is the table still found?", rows)
	}
}
