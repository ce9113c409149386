package playground

import (
	"math"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/cli/tui"
)

// The bar of a job is as long as its wait, two cells for each doubling, and fills
// as the wait passes: 1 s is one cell, 64 s are thirteen.
const cellsPerDoubling = 2

// progressBar shows a wait that began at since and ends at due.
func progressBar(now, since, due time.Time, cells int, filled tui.Style) tui.Line {
	if due.IsZero() {
		return tui.Line{tui.Plain.Of(strings.Repeat(" ", cells))}
	}
	wait := due.Sub(since)
	length := 1
	if wait > time.Second {
		length = 1 + int(math.Round(cellsPerDoubling*math.Log2(wait.Seconds())))
	}
	length = min(length, cells)
	full := length
	if now.Before(due) && wait > 0 {
		full = int(float64(length) * now.Sub(since).Seconds() / wait.Seconds())
	}
	full = max(0, min(full, length))
	return tui.Line{
		filled.Of(strings.Repeat("█", full)),
		tui.Dim.Of(strings.Repeat("░", length-full)),
		tui.Plain.Of(strings.Repeat(" ", cells-length)),
	}
}

// timelineSpan is how far a timeline goes back, at least.
const timelineSpan = 2 * time.Minute

// cellTime is what one cell of a timeline stands for.
func cellTime(cells int) time.Duration {
	perCell := (timelineSpan + time.Duration(cells) - 1) / time.Duration(cells)
	return max(2*time.Second, perCell.Round(time.Second))
}

// timelineLine shows results by when they came, the newest at the right. Cells are
// aligned to the clock, so that marks move by whole cells and keep their distances.
func timelineLine(now time.Time, marks []runMark, cells int) tui.Line {
	each := cellTime(cells)
	last := now.UnixNano() / int64(each)
	results := make([]runResult, cells)
	for _, m := range marks {
		i := cells - 1 - int(last-m.at.UnixNano()/int64(each))
		if i >= 0 && i < cells && !results[i].isFailure() {
			results[i] = m.last
		}
	}
	var out tui.Line
	for _, r := range results {
		glyph, s := "·", tui.Dim
		switch {
		case r == succeeded:
			glyph, s = "●", tui.Green
		case r.isFailure():
			glyph, s = "✗", tui.Red
		case r != noResult:
			glyph, s = "○", tui.Yellow
		}
		if n := len(out); n > 0 && out[n-1].Style == s {
			out[n-1].Text += glyph
			continue
		}
		out = append(out, s.Of(glyph))
	}
	return out
}
