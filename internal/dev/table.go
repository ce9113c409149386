package dev

import (
	"fmt"
	"strings"
	"time"
)

// Widths of the columns that are always there, each followed by a gap.
const (
	nameWidth  = 12
	phaseWidth = 8
	dueWidth   = 6
	failsWidth = 4
	barWidth   = 13
	runsWidth  = 4
)

// columns are the widths that depend on the terminal's. A timeline appears where
// there is room for one that shows something.
type columns struct {
	interval, timeline, last int
}

const (
	fixedWidth   = nameWidth + phaseWidth + dueWidth + failsWidth + barWidth + runsWidth + 8
	wideFrom     = 110
	lastAtLeast  = 26
	timelineMost = 60
)

func columnsFor(width int) columns {
	if width < wideFrom {
		return columns{interval: 8, last: max(0, width-fixedWidth-8)}
	}
	c := columns{interval: 13}
	left := width - fixedWidth - c.interval
	c.timeline = min(timelineMost, left-lastAtLeast-2)
	c.last = left - c.timeline - 2
	return c
}

func (c columns) head() line {
	l := line{{ruled, left("JOB", nameWidth) + " " + left("STATE", phaseWidth) + " " + right("DUE IN", dueWidth) + " " +
		right("FAIL", failsWidth) + " " + left("INTERVAL", c.interval) + " " + left("WAIT", barWidth) + " " + right("RUNS", runsWidth) + "  "}}
	if c.timeline > 0 {
		title := "LAST " + tidy(time.Duration(c.timeline)*cellTime(c.timeline))
		l = append(l, span{ruled, left(title, c.timeline) + "  "})
	}
	return append(l, span{ruled, left("LAST RESULT", c.last)})
}

func (c columns) row(now time.Time, r row) line {
	fails := span{dim, right("0", failsWidth) + " "}
	if r.failures > 0 {
		fails = span{red, right(compact(r.failures), failsWidth) + " "}
	}
	hue := r.style()
	l := line{
		{plain, left(r.name, nameWidth) + " "},
		{hue, left(string(r.phase), phaseWidth) + " "},
		{plain, right(r.dueIn(now), dueWidth) + " "},
		fails,
		{r.intervalStyle(), left(r.interval(c.interval >= 13), c.interval) + " "},
	}
	l = append(l, bar(now, r.since, r.due, barWidth, hue)...)
	l = append(l, span{plain, " " + right(compact(r.runs), runsWidth) + "  "})
	if c.timeline > 0 {
		l = append(l, timeline(now, r.marks, c.timeline)...)
		l = append(l, span{plain, "  "})
	}
	return append(l, r.lastResult()...)
}

func (r row) style() style {
	switch r.phase {
	case running:
		return cyan
	case backoff, retrying, hinted, held:
		return yellow
	case dead:
		return red
	case paused:
		return magenta
	case waiting:
		return green
	}
	return dim
}

// dueIn counts down to the next run, or up since the live one started.
func (r row) dueIn(now time.Time) string {
	switch {
	case r.phase == running && !r.started.IsZero():
		return "+" + countdown(now.Sub(r.started))
	case r.due.IsZero():
		return "-"
	case !r.due.After(now):
		return "now"
	}
	return countdown(r.due.Sub(now))
}

// interval is the interval in force, and how many times longer than that of the
// schedule it is.
func (r row) interval(wide bool) string {
	if r.phase == held {
		return r.gate
	}
	if r.every == 0 {
		if r.phase == retrying || r.phase == running && r.attempt > 1 {
			return fmt.Sprintf("try %d/%d", r.attempt, r.attempts)
		}
		return r.rule
	}
	text := ""
	switch {
	case r.phase == hinted:
		text = tidy(r.due.Sub(r.since)) + " ask"
	case r.effective > r.every:
		factor := fmt.Sprintf("×%.1f", float64(r.effective)/float64(r.every))
		text = tidy(r.effective) + " " + strings.TrimSuffix(factor, ".0")
	default:
		return tidy(r.every)
	}
	if wide {
		text = tidy(r.every) + "→" + text
	}
	return text
}

func (r row) intervalStyle() style {
	switch {
	case r.every == 0:
		return dim
	case r.effective > r.every || r.phase == hinted:
		return yellow
	}
	return plain
}

func (r row) lastResult() line {
	if r.last == noResult {
		return line{{dim, "-"}}
	}
	text := r.last.String()
	switch {
	case !r.last.bad() || r.lastError == "":
	case r.last == failed:
		text = gist(r.lastError)
	default:
		text += ": " + gist(r.lastError)
	}
	return line{{styleOf(r.last), text}}
}

// gist is the end of an error's chain, where the reason is; what was tried is in
// the events.
func gist(text string) string {
	if i := strings.LastIndex(text, ": "); i >= 0 && i+2 < len(text) {
		text = text[i+2:]
	}
	return strings.TrimPrefix(text, "unexpected status ")
}
