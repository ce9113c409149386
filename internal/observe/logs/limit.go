package logs

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// Window is how long lines are counted together.
	Window = 10 * time.Second
	// perMessage is how many times the limit of a job the lines with one message may
	// reach, whatever they are about.
	perMessage = 10
	// maxSubjects bounds what is counted by itself in a window.
	maxSubjects = 10_000
)

// unlimited are messages that are never left out.
var unlimited = map[string]bool{"audit": true}

// Limit bounds the lines that reach next: see the package comment. n is at least 1.
func Limit(next slog.Handler, n int) slog.Handler {
	return &limited{next: next, window: &window{out: next, limit: n}}
}

type limited struct {
	next    slog.Handler
	window  *window
	subject string // of the attributes that all lines have
	grouped bool   // attributes are in a group, where they mean something else
}

func (h *limited) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// Handle writes a line, or counts it.
func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	if !unlimited[r.Message] && !h.window.admits(line{r.Level, r.Message}, h.subjectOf(r)) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h *limited) subjectOf(r slog.Record) string {
	subject := h.subject
	if !h.grouped {
		r.Attrs(func(a slog.Attr) bool {
			subject = subjectOf(a, subject)
			return true
		})
	}
	return subject
}

// subjectOf is what a line is about, if the attribute says so.
func subjectOf(a slog.Attr, otherwise string) string {
	if (a.Key == "job" || a.Key == "record") && a.Value.Kind() == slog.KindString {
		return a.Value.String()
	}
	return otherwise
}

func (h *limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	other := *h
	other.next = h.next.WithAttrs(attrs)
	if !h.grouped {
		for _, a := range attrs {
			other.subject = subjectOf(a, other.subject)
		}
	}
	return &other
}

func (h *limited) WithGroup(name string) slog.Handler {
	other := *h
	other.next, other.grouped = h.next.WithGroup(name), h.grouped || name != ""
	return &other
}

// line is what lines with one message have in common.
type line struct {
	level   slog.Level
	message string
}

type about struct {
	line
	subject string
}

// window counts the lines of a while.
type window struct {
	out   slog.Handler
	limit int

	mu      sync.Mutex
	ends    time.Time
	counts  map[about]int
	totals  map[line]int
	left    map[line]int // left out
	pending bool         // a timer will tell what was
}

// admits tells whether a line is to be written.
func (w *window) admits(l line, subject string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if !now.Before(w.ends) && !w.pending {
		w.begin(now)
	}
	k := about{l, subject}
	if len(w.counts) >= maxSubjects && w.counts[k] == 0 {
		k.subject = ""
	}
	w.counts[k]++
	if k.subject == "" || w.counts[k] <= w.limit {
		// What one job repeats leaves the room of the others alone.
		if w.totals[l]++; w.totals[l] <= perMessage*w.limit {
			return true
		}
	}
	w.left[l]++
	if !w.pending {
		w.pending = true
		time.AfterFunc(w.ends.Sub(now), w.tell)
	}
	return false
}

func (w *window) begin(now time.Time) {
	w.ends = now.Add(Window)
	w.counts, w.totals, w.left = make(map[about]int), make(map[line]int), make(map[line]int)
}

// tell says what was left out, and begins anew.
func (w *window) tell() {
	w.mu.Lock()
	left := w.left
	w.pending = false
	w.begin(time.Now())
	w.mu.Unlock()
	for l, n := range left {
		r := slog.NewRecord(time.Now(), l.level, "log lines left out", 0)
		r.AddAttrs(slog.String("message", l.message), slog.Int("count", n), slog.Duration("within", Window))
		// A line that cannot be written is lost, like any other.
		_ = w.out.Handle(context.Background(), r)
	}
}
