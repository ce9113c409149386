package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// story collects what happened, as lines with the bubble's time, counted from its
// beginning.
type story struct {
	began time.Time
	mu    sync.Mutex
	lines []line
}

type line struct {
	at    time.Duration
	who   string
	level slog.Level
	text  string
}

func newStory() *story { return &story{began: time.Now()} }

func (s *story) tell(who string, level slog.Level, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line{time.Since(s.began), who, level, text})
}

// text is what was said at or above a level, and whatever names one of the words.
func (s *story) text(least slog.Level, words ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, l := range s.lines {
		if l.level >= least || names(l.text, words) {
			fmt.Fprintf(&b, "%10.4f  %-8s %s\n", l.at.Seconds(), l.who, l.text)
		}
	}
	return b.String()
}

func names(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// logger lets a process tell its part.
func (s *story) logger(who string) *slog.Logger { return slog.New(&teller{story: s, who: who}) }

// teller is a slog handler that writes into a story.
type teller struct {
	story *story
	who   string
	attrs []slog.Attr
}

func (t *teller) Enabled(context.Context, slog.Level) bool { return true }

func (t *teller) Handle(_ context.Context, r slog.Record) error {
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
	t.story.tell(t.who, r.Level, "%s", b.String())
	return nil
}

func (t *teller) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &teller{t.story, t.who, append(t.attrs[:len(t.attrs):len(t.attrs)], attrs...)}
}

func (t *teller) WithGroup(string) slog.Handler { return t }
