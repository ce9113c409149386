package librarylog

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTextsAreAttributes of a constant message, and are cut.
func TestTextsAreAttributes(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "plain": "plain", "a line\n": "a line", "two\nlines\n": "two\nlines", "\xff": "\uFFFD",
		strings.Repeat("x", 1<<20):                strings.Repeat("x", MaxText),
		strings.Repeat("x", MaxText-1) + "\u00e4": strings.Repeat("x", MaxText-1) + "\uFFFD",
	} {
		var out bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&out, nil))
		Log(logger, slog.LevelWarn, "message of a library", text)
		Log(logger, slog.LevelDebug, "message of a library", text)
		NewStandard(logger, slog.LevelWarn, "message of a library").Print(text)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("%d lines", len(lines))
		}
		for _, line := range lines {
			var got map[string]string
			err := json.Unmarshal([]byte(line), &got)
			if err != nil || got["level"] != "WARN" || got["msg"] != "message of a library" || got["text"] != want || !utf8.ValidString(line) {
				t.Errorf("%.20q: %s, %v", text, line, err)
			}
		}
	}
}
