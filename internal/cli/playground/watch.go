package playground

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/cli/tui"
)

const (
	eventsKept  = 50
	marksFor    = 5 * time.Minute
	marksAtMost = 300
)

// event is something that was seen to happen.
type event struct {
	at   time.Time
	job  string
	last result
	text string
}

// watcher turns successive listings of the jobs into rows with a past, and into
// events. It is not safe for concurrent use.
type watcher struct {
	rank map[string]int // of the samples; other jobs follow by name
	rows map[string]row
	seen bool
}

func newWatcher(order []string) *watcher {
	w := &watcher{rank: map[string]int{}, rows: map[string]row{}}
	for i, name := range order {
		w.rank[name] = i - len(order)
	}
	return w
}

// see takes a listing and returns what happened since the last one, oldest first.
// A listing that is not complete says nothing about jobs that it lacks.
func (w *watcher) see(now time.Time, listing []row, complete bool) []event {
	var events []event
	present := make(map[string]bool, len(listing))
	for _, r := range listing {
		before, known := w.rows[r.name]
		r.marks = before.marks
		if r.finished.After(before.finished) {
			r.marks = append(prune(r.marks, now), mark{r.finished, r.last})
		}
		if w.seen {
			events = append(events, compare(now, before, r, known)...)
		}
		w.rows[r.name], present[r.name] = r, true
	}
	if complete {
		for name := range w.rows {
			if !present[name] {
				events = append(events, event{at: now, job: name, text: "deleted"})
				delete(w.rows, name)
			}
		}
	}
	w.seen = true
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.job, b.job)) })
	return events
}

// sorted are the rows in the order of the view.
func (w *watcher) sorted() []row {
	all := make([]row, 0, len(w.rows))
	for _, r := range w.rows {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b row) int {
		return cmp.Or(cmp.Compare(w.rank[a.name], w.rank[b.name]), cmp.Compare(a.name, b.name))
	})
	return all
}

func prune(marks []mark, now time.Time) []mark {
	keep := slices.IndexFunc(marks, func(m mark) bool { return now.Sub(m.at) < marksFor })
	if keep < 0 {
		return nil
	}
	return slices.Clone(marks[max(keep, len(marks)-marksAtMost):])
}

// compare tells what happened to one job.
func compare(now time.Time, before, after row, known bool) []event {
	var events []event
	say := func(at time.Time, last result, format string, args ...any) {
		events = append(events, event{at, after.name, last, fmt.Sprintf(format, args...)})
	}
	if !known {
		say(now, noResult, "registered%s", next(now, after))
	}
	if after.finished.After(before.finished) {
		say(after.finished, after.last, "%s", verdict(before, after))
	}
	if after.lost > before.lost {
		say(now, lost, "its worker vanished; no attempt is used up%s", next(now, after))
	}
	switch {
	case known && after.phase == held && before.phase != held:
		say(now, noResult, "held by %s, which is no failure", after.gate)
	case known && after.phase == paused && before.phase != paused:
		say(now, noResult, "paused")
	case known && after.phase != paused && before.phase == paused:
		say(now, noResult, "resumed%s", next(now, after))
	}
	return events
}

// verdict words a result and what follows from it.
func verdict(before, after row) string {
	var b strings.Builder
	b.WriteString(after.last.String())
	switch {
	case after.phase == dead:
		fmt.Fprintf(&b, "; no attempts left, kept as a dead letter")
	case after.last.bad() && after.failures > 1:
		fmt.Fprintf(&b, "; %d failures in a row", after.failures)
	case after.last == succeeded && before.failures > 0:
		fmt.Fprintf(&b, "; backoff reset after %s", tui.Plural(before.failures, "failure"))
	}
	b.WriteString(next(after.finished, after))
	if after.last.bad() && after.lastError != "" {
		b.WriteString(" (" + after.lastError + ")") // last, for it may be cut off
	}
	return b.String()
}

// next words when a job runs again, and why then.
func next(from time.Time, r row) string {
	if r.due.IsZero() {
		return ""
	}
	wait := tui.Tidy(r.due.Sub(from))
	switch r.phase {
	case backoff:
		return fmt.Sprintf("; next in %s instead of %s", wait, tui.Tidy(r.every))
	case retrying:
		return fmt.Sprintf("; attempt %d in %s", r.attempt, wait)
	case hinted:
		return fmt.Sprintf("; next in %s, as it asked", wait)
	}
	return "; next in " + wait
}
