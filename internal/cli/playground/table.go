package playground

import (
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/cli/tui"
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

// columnWidths are the widths that depend on the terminal's. A timeline appears where
// there is room for one that shows something.
type columnWidths struct {
	interval, timeline, last int
}

const (
	fixedWidth       = nameWidth + phaseWidth + dueWidth + failsWidth + barWidth + runsWidth + 8
	wideWidth        = 110
	minLastWidth     = 26
	maxTimelineWidth = 60
)

func columnsFor(width int) columnWidths {
	if width < wideWidth {
		return columnWidths{interval: 8, last: max(0, width-fixedWidth-8)}
	}
	c := columnWidths{interval: 13}
	left := width - fixedWidth - c.interval
	c.timeline = min(maxTimelineWidth, left-minLastWidth-2)
	c.last = left - c.timeline - 2
	return c
}

func (c columnWidths) headLine() tui.Line {
	l := tui.Line{tui.Ruled.Of(tui.Left("JOB", nameWidth) + " " + tui.Left("STATE",
		phaseWidth) + " " + tui.Right("DUE IN", dueWidth) + " " +
		tui.Right("FAIL", failsWidth) + " " + tui.Left("INTERVAL", c.interval) + " " + tui.Left("WAIT",
		barWidth) + " " + tui.Right("RUNS", runsWidth) + "  ")}
	if c.timeline > 0 {
		title := "LAST " + tui.FormatDuration(time.Duration(c.timeline)*cellTime(c.timeline))
		l = append(l, tui.Ruled.Of(tui.Left(title, c.timeline)+"  "))
	}
	return append(l, tui.Ruled.Of(tui.Left("LAST RESULT", c.last)))
}

func (c columnWidths) rowLine(now time.Time, r jobRow) tui.Line {
	fails := tui.Dim.Of(tui.Right("0", failsWidth) + " ")
	if r.failures > 0 {
		fails = tui.Red.Of(tui.Right(tui.FormatCount(r.failures), failsWidth) + " ")
	}
	hue := r.lineStyle()
	l := tui.Line{
		tui.Plain.Of(tui.Left(r.name, nameWidth) + " "),
		hue.Of(tui.Left(string(r.phase), phaseWidth) + " "),
		tui.Plain.Of(tui.Right(r.dueIn(now), dueWidth) + " "),
		fails,
		r.intervalStyle().Of(tui.Left(r.intervalText(c.interval >= 13), c.interval) + " "),
	}
	l = append(l, progressBar(now, r.since, r.due, barWidth, hue)...)
	l = append(l, tui.Plain.Of(" "+tui.Right(tui.FormatCount(r.runs), runsWidth)+"  "))
	if c.timeline > 0 {
		l = append(l, timelineLine(now, r.marks, c.timeline)...)
		l = append(l, tui.Plain.Of("  "))
	}
	return append(l, r.lastResult()...)
}

func (r jobRow) lineStyle() tui.Style {
	switch r.phase {
	case running:
		return tui.Cyan
	case backoff, retrying, hinted, held:
		return tui.Yellow
	case dead:
		return tui.Red
	case paused:
		return tui.Magenta
	case waiting:
		return tui.Green
	}
	return tui.Dim
}

// dueIn counts down to the next run, or up since the live one started.
func (r jobRow) dueIn(now time.Time) string {
	switch {
	case r.phase == running && !r.started.IsZero():
		return "+" + tui.Countdown(now.Sub(r.started))
	case r.due.IsZero():
		return "-"
	case !r.due.After(now):
		return "now"
	}
	return tui.Countdown(r.due.Sub(now))
}

// intervalText is the interval in force, and how many times longer than that of the
// schedule it is.
func (r jobRow) intervalText(wide bool) string {
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
		text = tui.FormatDuration(r.due.Sub(r.since)) + " ask"
	case r.effective > r.every:
		factor := fmt.Sprintf("×%.1f", float64(r.effective)/float64(r.every))
		text = tui.FormatDuration(r.effective) + " " + strings.TrimSuffix(factor, ".0")
	default:
		return tui.FormatDuration(r.every)
	}
	if wide {
		text = tui.FormatDuration(r.every) + "→" + text
	}
	return text
}

func (r jobRow) intervalStyle() tui.Style {
	switch {
	case r.every == 0:
		return tui.Dim
	case r.effective > r.every || r.phase == hinted:
		return tui.Yellow
	}
	return tui.Plain
}

func (r jobRow) lastResult() tui.Line {
	if r.last == noResult {
		return tui.Line{tui.Dim.Of("-")}
	}
	text := r.last.String()
	switch {
	case !r.last.isFailure() || r.lastError == "":
	case r.last == failed:
		text = firstLine(r.lastError)
	default:
		text += ": " + firstLine(r.lastError)
	}
	return tui.Line{styleOf(r.last).Of(text)}
}

// firstLine is the end of an error's chain, where the reason is; what was tried is in
// the events.
func firstLine(text string) string {
	if i := strings.LastIndex(text, ": "); i >= 0 && i+2 < len(text) {
		text = text[i+2:]
	}
	return strings.TrimPrefix(text, "unexpected status ")
}
