package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// story collects log lines with the bubble's time, counted from its beginning.
type story struct {
	began time.Time
	mu    sync.Mutex
	lines []storyLine
}

type storyLine struct {
	at    time.Duration
	who   string
	level slog.Level
	text  string
}

func newStory() *story { return &story{began: time.Now()} }

func (s *story) addLine(who string, level slog.Level, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, storyLine{time.Since(s.began), who, level, text})
}

// formatLines returns the lines at or above a level, and those that contain one of the words.
func (s *story) formatLines(least slog.Level, words ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, l := range s.lines {
		if l.level >= least || containsAny(l.text, words) {
			fmt.Fprintf(&b, "%10.4f  %-8s %s\n", l.at.Seconds(), l.who, l.text)
		}
	}
	return b.String()
}

func containsAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// newLogger returns a logger of a process that writes to the story.
func (s *story) newLogger(who string) *slog.Logger {
	return slog.New(&storyHandler{story: s, who: who})
}

// storyHandler is a slog handler that writes to a story.
type storyHandler struct {
	story *story
	who   string
	attrs []slog.Attr
}

func (t *storyHandler) Enabled(context.Context, slog.Level) bool { return true }

func (t *storyHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	add := func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	}
	for _, a := range t.attrs {
		add(a)
	}
	r.Attrs(add)
	t.story.addLine(t.who, r.Level, "%s", b.String())
	return nil
}

func (t *storyHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &storyHandler{t.story, t.who, append(t.attrs[:len(t.attrs):len(t.attrs)], attrs...)}
}

func (t *storyHandler) WithGroup(string) slog.Handler { return t }
