package logs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// Window is the period in which records are counted together.
	Window = 10 * time.Second
	// messageFactor is how many times the limit of one job the records with one message may reach, for all jobs.
	messageFactor = 10
	// maxSubjects bounds the subjects that are counted separately in a window, and maxMessages the messages.
	maxSubjects = 10_000
	maxMessages = 1_000
	// maxKeptText bounds the bytes that are kept of a message or of a subject.
	maxKeptText = 256
	// otherMessages stands for the messages beyond maxMessages, which are counted together.
	otherMessages = "other messages"
)

// unlimited are messages that are never omitted.
var unlimited = map[string]bool{"audit": true}

// LimitRepeats bounds the records that reach next: see the package comment. n is at least 1.
func LimitRepeats(next slog.Handler, n int) slog.Handler {
	return &limited{next: next, window: &window{out: next, limit: n}}
}

type limited struct {
	next    slog.Handler
	window  *window
	subject string // of the attributes that all records have
	grouped bool   // attributes are in a group, where their names mean something else
}

func (h *limited) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// Handle writes a record, or counts it.
func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	if !unlimited[r.Message] && !h.window.allowRecord(recordKind{r.Level, keptText(r.Message)}, keptText(h.recordSubject(r))) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// keptText returns the beginning of a text. It does not keep the memory of the rest.
func keptText(text string) string {
	if len(text) <= maxKeptText {
		return text
	}
	return strings.Clone(text[:maxKeptText])
}

func (h *limited) recordSubject(r slog.Record) string {
	subject := h.subject
	if !h.grouped {
		r.Attrs(func(a slog.Attr) bool {
			subject = attrSubject(a, subject)
			return true
		})
	}
	return subject
}

// attrSubject is the subject in an attribute, otherwise the given one.
func attrSubject(a slog.Attr, otherwise string) string {
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
			other.subject = attrSubject(a, other.subject)
		}
	}
	return &other
}

func (h *limited) WithGroup(name string) slog.Handler {
	other := *h
	other.next, other.grouped = h.next.WithGroup(name), h.grouped || name != ""
	return &other
}

// recordKind is what records with one message have in common.
type recordKind struct {
	level   slog.Level
	message string
}

type recordSubjectKey struct {
	recordKind
	subject string
}

// window counts the records of a [Window]. It begins with a record, and a timer ends it.
type window struct {
	out   slog.Handler
	limit int

	mu      sync.Mutex
	counts  map[recordSubjectKey]int // nil: no window has begun
	totals  map[recordKind]int
	omitted map[recordKind]int
}

// allowRecord reports whether a record is to be written.
func (w *window) allowRecord(l recordKind, subject string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts == nil {
		w.counts, w.totals, w.omitted = make(map[recordSubjectKey]int), make(map[recordKind]int), make(map[recordKind]int)
		time.AfterFunc(Window, w.end)
	}
	if len(w.totals) >= maxMessages && w.totals[l] == 0 {
		l.message = otherMessages
	}
	k := recordSubjectKey{l, subject}
	if len(w.counts) >= maxSubjects && w.counts[k] == 0 {
		k.subject = ""
	}
	w.counts[k]++
	if k.subject == "" || w.counts[k] <= w.limit {
		// Omitted records of one job do not use up the limit of the others.
		w.totals[l]++
		if w.totals[l] <= messageFactor*w.limit {
			return true
		}
	}
	w.omitted[l]++
	return false
}

// end ends the window, and writes the counts of omitted records.
func (w *window) end() {
	w.mu.Lock()
	left := w.omitted
	w.counts, w.totals, w.omitted = nil, nil, nil
	w.mu.Unlock()
	for l, n := range left {
		r := slog.NewRecord(time.Now(), l.level, "log lines left out", 0)
		r.AddAttrs(slog.String("message", l.message), slog.Int("count", n), slog.Duration("within", Window))
		// A write error loses the record, like any other.
		_ = w.out.Handle(context.Background(), r)
	}
}
