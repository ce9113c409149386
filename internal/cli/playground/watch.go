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
	maxEvents     = 50
	markRetention = 5 * time.Minute
	maxMarks      = 300
)

// jobEvent is something that was seen to happen.
type jobEvent struct {
	at   time.Time
	job  string
	last runResult
	text string
}

// jobWatcher turns successive listings of the jobs into rows with a past, and into
// events. It is not safe for concurrent use.
type jobWatcher struct {
	rank map[string]int // of the samples; other jobs follow by name
	rows map[string]jobRow
	seen bool
}

func newWatcher(order []string) *jobWatcher {
	w := &jobWatcher{rank: map[string]int{}, rows: map[string]jobRow{}}
	for i, name := range order {
		w.rank[name] = i - len(order)
	}
	return w
}

// compareListing returns what happened since the last listing, oldest first. A job that an incomplete listing
// lacks is unchanged.
func (w *jobWatcher) compareListing(now time.Time, listing []jobRow, complete bool) []jobEvent {
	var events []jobEvent
	present := make(map[string]bool, len(listing))
	for _, r := range listing {
		before, known := w.rows[r.name]
		r.marks = before.marks
		if r.finished.After(before.finished) {
			r.marks = append(pruneMarks(r.marks, now), runMark{r.finished, r.last})
		}
		if w.seen {
			events = append(events, compareRows(now, before, r, known)...)
		}
		w.rows[r.name], present[r.name] = r, true
	}
	if complete {
		for name := range w.rows {
			if !present[name] {
				events = append(events, jobEvent{at: now, job: name, text: "deleted"})
				delete(w.rows, name)
			}
		}
	}
	w.seen = true
	slices.SortStableFunc(events, func(a, b jobEvent) int {
		return cmp.Or(a.at.Compare(b.at),
			cmp.Compare(a.job, b.job))
	})
	return events
}

// sortedRows are the rows in the order of the view.
func (w *jobWatcher) sortedRows() []jobRow {
	all := make([]jobRow, 0, len(w.rows))
	for _, r := range w.rows {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b jobRow) int {
		return cmp.Or(cmp.Compare(w.rank[a.name], w.rank[b.name]), cmp.Compare(a.name, b.name))
	})
	return all
}

func pruneMarks(marks []runMark, now time.Time) []runMark {
	keep := slices.IndexFunc(marks, func(m runMark) bool { return now.Sub(m.at) < markRetention })
	if keep < 0 {
		return nil
	}
	return slices.Clone(marks[max(keep, len(marks)-maxMarks):])
}

// compareRows returns what happened to one job.
func compareRows(now time.Time, before, after jobRow, known bool) []jobEvent {
	var events []jobEvent
	say := func(at time.Time, last runResult, format string, args ...any) {
		events = append(events, jobEvent{at, after.name, last, fmt.Sprintf(format, args...)})
	}
	if !known {
		say(now, noResult, "registered%s", nextText(now, after))
	}
	if after.finished.After(before.finished) {
		say(after.finished, after.last, "%s", outcomeText(before, after))
	}
	if after.lost > before.lost {
		say(now, lost, "its worker vanished; no attempt is used up%s", nextText(now, after))
	}
	switch {
	case known && after.phase == held && before.phase != held:
		say(now, noResult, "held by %s, which is no failure", after.gate)
	case known && after.phase == paused && before.phase != paused:
		say(now, noResult, "paused")
	case known && after.phase != paused && before.phase == paused:
		say(now, noResult, "resumed%s", nextText(now, after))
	}
	return events
}

// outcomeText describes a result and what follows from it.
func outcomeText(before, after jobRow) string {
	var b strings.Builder
	b.WriteString(after.last.String())
	switch {
	case after.phase == dead:
		fmt.Fprintf(&b, "; no attempts left, kept as a dead letter")
	case after.last.isFailure() && after.failures > 1:
		fmt.Fprintf(&b, "; %d failures in a row", after.failures)
	case after.last == succeeded && before.failures > 0:
		fmt.Fprintf(&b, "; backoff reset after %s", tui.Plural(before.failures, "failure"))
	}
	b.WriteString(nextText(after.finished, after))
	if after.last.isFailure() && after.lastError != "" {
		b.WriteString(" (" + after.lastError + ")") // last, for it may be cut off
	}
	return b.String()
}

// nextText describes when and why a job runs again.
func nextText(from time.Time, r jobRow) string {
	if r.due.IsZero() {
		return ""
	}
	wait := tui.FormatDuration(r.due.Sub(from))
	switch r.phase {
	case backoff:
		return fmt.Sprintf("; next in %s instead of %s", wait, tui.FormatDuration(r.every))
	case retrying:
		return fmt.Sprintf("; attempt %d in %s", r.attempt, wait)
	case hinted:
		return fmt.Sprintf("; next in %s, as it asked", wait)
	}
	return "; next in " + wait
}
