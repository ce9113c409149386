package filewatch

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// parseWord refuses texts with a space, and counts its calls.
func parseWord(calls *int) func([]byte) (string, error) {
	return func(text []byte) (string, error) {
		*calls++
		word := strings.TrimSpace(string(text))
		if strings.Contains(word, " ") {
			return "", errors.New("more than one word")
		}
		return word, nil
	}
}

func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	if _, err := Open(path, 16, parseWord(&calls)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	write("two words")
	if _, err := Open(path, 16, parseWord(&calls)); err == nil {
		t.Error("an invalid file was opened")
	}
	write("a")
	f, err := Open(path, 16, parseWord(&calls))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	calls = 0
	for _, step := range []struct {
		what    string
		text    string // "": the file is removed
		content string
		changed bool
		valid   bool
		logged  string
		parsed  int
	}{
		{what: "the same text", text: "a", content: "a", valid: true},
		{what: "a new text", text: "b", content: "b", changed: true, valid: true, parsed: 1},
		{what: "an invalid text", text: "b c", content: "b", logged: "level=ERROR msg=\"word file is invalid", parsed: 1},
		{what: "the same invalid text", text: "b c", content: "b", parsed: 1},
		{what: "no file", content: "b", logged: "no such file"},
		{what: "too long", text: strings.Repeat("x", 17), content: "b", logged: "longer than 16 bytes"},
		{what: "the last valid text", text: "b", content: "b", valid: true, logged: "msg=\"word file is valid again"},
		{what: "another text", text: "c", content: "c", changed: true, valid: true, parsed: 1},
	} {
		write(step.text)
		if step.text == "" {
			_ = os.Remove(path)
		}
		log.Reset()
		calls = 0
		changed := f.Reload(logger, "word file")
		if changed != step.changed || f.Content() != step.content || (f.Fault() == nil) != step.valid || calls != step.parsed {
			t.Errorf("%s: changed %v, content %q, fault %v, parsed %d times", step.what, changed, f.Content(), f.Fault(), calls)
		}
		if step.logged == "" && log.Len() > 0 || !strings.Contains(log.String(), step.logged) {
			t.Errorf("%s: logged %q, want %q", step.what, &log, step.logged)
		}
	}
}

// Several errors one after the other are logged once each, and then that the file is valid.
func TestStatusLogsChangesOnly(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var s Status
	one, two := errors.New("one"), errors.New("two")
	for _, err := range []error{nil, one, errors.New("one"), two, two, nil, nil} {
		s.Update(err, logger, "access file", "/path")
		if !errors.Is(s.Fault(), err) && s.Fault().Error() != err.Error() {
			t.Errorf("fault is %v, want %v", s.Fault(), err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("%d lines, want 3: %s", n, &log)
	}
}
