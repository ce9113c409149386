package main

import (
	"os"
	"strings"
	"testing"
)

func TestEveryFieldIsDescribed(t *testing.T) {
	for _, page := range []string{"job.md", "api.md"} {
		t.Run(page, func(t *testing.T) { checkRows(t, page) })
	}
}

// checkRows fails the test for each row of a page without a meaning.
func checkRows(t *testing.T, name string) {
	page, err := os.ReadFile("../../docs/reference/" + name)
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
		if strings.Trim(cells[len(cells)-1], " |") == "" {
			t.Errorf("a field or method has no comment in the protos: %s", line)
		}
	}
	if rows < 100 {
		t.Errorf("%d fields: is the table still found?", rows)
	}
}
