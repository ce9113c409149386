package playground

import (
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/cli/tui"
)

// connectionFacts are the addresses in the header.
type connectionFacts struct {
	grpc    string // address
	rest    string // URL
	metrics string // URL
	target  string // URL
	redis   string
	log     string
	keepLog bool
}

// frame is everything that one picture of the live view shows.
type frame struct {
	now    time.Time
	up     time.Duration
	facts  connectionFacts
	mode   targetMode
	rows   []jobRow
	events []jobEvent
	notice string // what is wrong, or what is being waited for
}

// How many events there are below the table, where there have been as many.
const (
	minEventsShown = 3
	maxEventsShown = 8
)

// tallHeight is the height from which there is room for the addresses.
const tallHeight = 20

// renderLines lays the frame out for a terminal. Where there is no room for all, the
// oldest events go first, then the addresses, then the last jobs.
func (f frame) renderLines(width, height int) []tui.Line {
	out := []tui.Line{f.titleLine(width)}
	if height >= tallHeight {
		out = append(out, f.facts.renderLines(f.mode)...)
	}
	c := columnsFor(width)
	below := 0
	if f.notice != "" {
		below = 2
	}
	if len(f.events) > 0 {
		below += 1 + min(len(f.events), minEventsShown)
	}
	room := max(1, height-len(out)-2-below)
	out = append(out, tui.Line{}, c.headLine())
	shown := f.rows
	if len(shown) > room {
		shown = shown[:room-1]
	}
	for _, r := range shown {
		out = append(out, c.rowLine(f.now, r))
	}
	if n := len(f.rows) - len(shown); n > 0 {
		out = append(out, tui.Line{tui.Dim.Of(fmt.Sprintf("and %d more", n))})
	}
	out = append(out, f.footerLine(height-len(out))...)
	out = out[:max(0, min(len(out), height))]
	for i := range out {
		out[i] = out[i].Clip(width)
	}
	return out
}

// titleLine is the first line.
func (f frame) titleLine(width int) tui.Line {
	failing := 0
	for _, r := range f.rows {
		if r.failures > 0 {
			failing++
		}
	}
	title := tui.Line{tui.Bold.Of("Fermata dev"), tui.Dim.Of("  everything in one process; nothing is kept after exit")}
	up := tui.FormatDuration(f.up.Truncate(time.Second))
	status := fmt.Sprintf("%s  up %s", tui.Plural(int64(len(f.rows)), "job"), up)
	if failing > 0 {
		status = fmt.Sprintf("%d failing  ", failing) + status
	}
	if gap := width - title.Width() - len(status); gap > 0 {
		title = append(title, tui.Plain.Of(tui.Right("", gap)), tui.Dim.Of(status))
	}
	return title
}

// renderLines returns how to reach the running parts.
func (a connectionFacts) renderLines(m targetMode) []tui.Line {
	now := tui.Dim
	if m != scripted {
		now = tui.Yellow
	}
	kept := "  (removed at exit)"
	if a.keepLog {
		kept = ""
	}
	return []tui.Line{
		{tui.Dim.Of("gRPC     "), tui.Cyan.Of(a.grpc), tui.Dim.Of("  fermata --address " + a.grpc + " jobs list")},
		{tui.Dim.Of("console  "), tui.Cyan.Of(a.rest + "/"), tui.Dim.Of("  curl " + a.rest + "/v1/namespaces/default/jobs")},
		{tui.Dim.Of("metrics  "), tui.Cyan.Of(a.metrics), tui.Dim.Of("  redis: " + a.redis)},
		{tui.Dim.Of("target   "), tui.Cyan.Of(a.target), now.Of("  " + string(m))},
		{tui.Dim.Of("         break it: "), tui.Plain.Of("curl -X POST " + a.target + "/fail"),
			tui.Dim.Of("  or /heal, /reset")},
		{tui.Dim.Of("logs     "), tui.Plain.Of(a.log), tui.Dim.Of(kept)},
	}
}

// footerLine is the last events, as many as fit, and the notice.
func (f frame) footerLine(room int) []tui.Line {
	var notice []tui.Line
	if f.notice != "" {
		notice = []tui.Line{{}, {tui.Yellow.Of(f.notice)}}
	}
	n := min(len(f.events), maxEventsShown, room-len(notice)-1)
	if n <= 0 {
		return notice
	}
	out := []tui.Line{{}}
	for _, e := range f.events[len(f.events)-n:] {
		out = append(out, e.renderLine())
	}
	return append(out, notice...)
}

// renderLine returns an event as text. The time is in the terminal's zone.
func (e jobEvent) renderLine() tui.Line {
	return tui.Line{
		tui.Dim.Of(e.at.Local().Format("15:04:05") + "  "),
		tui.Plain.Of(tui.Left(e.job, nameWidth) + "  "),
		styleOf(e.last).Of(e.text),
	}
}

func styleOf(r runResult) tui.Style {
	switch {
	case r == succeeded:
		return tui.Green
	case r.isFailure():
		return tui.Red
	}
	return tui.Plain
}
