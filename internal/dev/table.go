package dev

import (
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/screen"
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

func (c columns) head() screen.Line {
	l := screen.Line{screen.Ruled.Of(screen.Left("JOB", nameWidth) + " " + screen.Left("STATE", phaseWidth) + " " + screen.Right("DUE IN", dueWidth) + " " +
		screen.Right("FAIL", failsWidth) + " " + screen.Left("INTERVAL", c.interval) + " " + screen.Left("WAIT", barWidth) + " " + screen.Right("RUNS", runsWidth) + "  ")}
	if c.timeline > 0 {
		title := "LAST " + screen.Tidy(time.Duration(c.timeline)*cellTime(c.timeline))
		l = append(l, screen.Ruled.Of(screen.Left(title, c.timeline)+"  "))
	}
	return append(l, screen.Ruled.Of(screen.Left("LAST RESULT", c.last)))
}

func (c columns) row(now time.Time, r row) screen.Line {
	fails := screen.Dim.Of(screen.Right("0", failsWidth) + " ")
	if r.failures > 0 {
		fails = screen.Red.Of(screen.Right(screen.Compact(r.failures), failsWidth) + " ")
	}
	hue := r.style()
	l := screen.Line{
		screen.Plain.Of(screen.Left(r.name, nameWidth) + " "),
		hue.Of(screen.Left(string(r.phase), phaseWidth) + " "),
		screen.Plain.Of(screen.Right(r.dueIn(now), dueWidth) + " "),
		fails,
		r.intervalStyle().Of(screen.Left(r.interval(c.interval >= 13), c.interval) + " "),
	}
	l = append(l, bar(now, r.since, r.due, barWidth, hue)...)
	l = append(l, screen.Plain.Of(" "+screen.Right(screen.Compact(r.runs), runsWidth)+"  "))
	if c.timeline > 0 {
		l = append(l, timeline(now, r.marks, c.timeline)...)
		l = append(l, screen.Plain.Of("  "))
	}
	return append(l, r.lastResult()...)
}

func (r row) style() screen.Style {
	switch r.phase {
	case running:
		return screen.Cyan
	case backoff, retrying, hinted, held:
		return screen.Yellow
	case dead:
		return screen.Red
	case paused:
		return screen.Magenta
	case waiting:
		return screen.Green
	}
	return screen.Dim
}

// dueIn counts down to the next run, or up since the live one started.
func (r row) dueIn(now time.Time) string {
	switch {
	case r.phase == running && !r.started.IsZero():
		return "+" + screen.Countdown(now.Sub(r.started))
	case r.due.IsZero():
		return "-"
	case !r.due.After(now):
		return "now"
	}
	return screen.Countdown(r.due.Sub(now))
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
		text = screen.Tidy(r.due.Sub(r.since)) + " ask"
	case r.effective > r.every:
		factor := fmt.Sprintf("×%.1f", float64(r.effective)/float64(r.every))
		text = screen.Tidy(r.effective) + " " + strings.TrimSuffix(factor, ".0")
	default:
		return screen.Tidy(r.every)
	}
	if wide {
		text = screen.Tidy(r.every) + "→" + text
	}
	return text
}

func (r row) intervalStyle() screen.Style {
	switch {
	case r.every == 0:
		return screen.Dim
	case r.effective > r.every || r.phase == hinted:
		return screen.Yellow
	}
	return screen.Plain
}

func (r row) lastResult() screen.Line {
	if r.last == noResult {
		return screen.Line{screen.Dim.Of("-")}
	}
	text := r.last.String()
	switch {
	case !r.last.bad() || r.lastError == "":
	case r.last == failed:
		text = gist(r.lastError)
	default:
		text += ": " + gist(r.lastError)
	}
	return screen.Line{styleOf(r.last).Of(text)}
}

// gist is the end of an error's chain, where the reason is; what was tried is in
// the events.
func gist(text string) string {
	if i := strings.LastIndex(text, ": "); i >= 0 && i+2 < len(text) {
		text = text[i+2:]
	}
	return strings.TrimPrefix(text, "unexpected status ")
}
