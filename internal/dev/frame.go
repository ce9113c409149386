package dev

import (
	"fmt"
	"time"
)

// facts are what the header tells of a run.
type facts struct {
	grpc    string // address
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
	facts  facts
	mode   mode
	rows   []row
	events []event
	notice string // what is wrong, or what is being waited for
}

// How many events there are below the table, where there have been as many.
const (
	eventsAtLeast = 3
	eventsShown   = 8
)

// tallFrom is the height from which there is room for the addresses.
const tallFrom = 20

// lines lays the frame out for a terminal. Where there is no room for all, the
// oldest events go first, then the addresses, then the last jobs.
func (f frame) lines(width, height int) []line {
	out := []line{f.title(width)}
	if height >= tallFrom {
		out = append(out, f.facts.lines(f.mode)...)
	}
	c := columnsFor(width)
	below := 0
	if f.notice != "" {
		below = 2
	}
	if len(f.events) > 0 {
		below += 1 + min(len(f.events), eventsAtLeast)
	}
	room := max(1, height-len(out)-2-below)
	out = append(out, line{}, c.head())
	shown := f.rows
	if len(shown) > room {
		shown = shown[:room-1]
	}
	for _, r := range shown {
		out = append(out, c.row(f.now, r))
	}
	if n := len(f.rows) - len(shown); n > 0 {
		out = append(out, line{{dim, fmt.Sprintf("and %d more", n)}})
	}
	out = append(out, f.footer(height-len(out))...)
	out = out[:max(0, min(len(out), height))]
	for i := range out {
		out[i] = out[i].clip(width)
	}
	return out
}

// title is the first line.
func (f frame) title(width int) line {
	failing := 0
	for _, r := range f.rows {
		if r.failures > 0 {
			failing++
		}
	}
	title := line{{bold, "Fermata dev"}, {dim, "  everything in one process; nothing is kept after exit"}}
	status := fmt.Sprintf("%s  up %s", plural(int64(len(f.rows)), "job"), tidy(f.up.Truncate(time.Second)))
	if failing > 0 {
		status = fmt.Sprintf("%d failing  ", failing) + status
	}
	if gap := width - title.width() - len(status); gap > 0 {
		title = append(title, span{plain, right("", gap)}, span{dim, status})
	}
	return title
}

// lines say how to reach what runs.
func (a facts) lines(m mode) []line {
	now := dim
	if m != scripted {
		now = yellow
	}
	kept := "  (removed at exit)"
	if a.keepLog {
		kept = ""
	}
	return []line{
		{{dim, "gRPC     "}, {cyan, a.grpc}, {dim, "  fermata --address " + a.grpc + " jobs list"}},
		{{dim, "metrics  "}, {cyan, a.metrics}, {dim, "  redis: " + a.redis}},
		{{dim, "target   "}, {cyan, a.target}, {now, "  " + string(m)}},
		{{dim, "         break it: "}, {plain, "curl -X POST " + a.target + "/fail"}, {dim, "  or /heal, /reset"}},
		{{dim, "logs     "}, {plain, a.log}, {dim, kept}},
	}
}

// footer is the last events, as many as fit, and the notice.
func (f frame) footer(room int) []line {
	var notice []line
	if f.notice != "" {
		notice = []line{{}, {{yellow, f.notice}}}
	}
	n := min(len(f.events), eventsShown, room-len(notice)-1)
	if n <= 0 {
		return notice
	}
	out := []line{{}}
	for _, e := range f.events[len(f.events)-n:] {
		out = append(out, e.line())
	}
	return append(out, notice...)
}

// line words an event. The time is that of the terminal's zone.
func (e event) line() line {
	return line{
		{dim, e.at.Local().Format("15:04:05") + "  "},
		{plain, left(e.job, nameWidth) + "  "},
		{styleOf(e.last), e.text},
	}
}

func styleOf(r result) style {
	switch {
	case r == succeeded:
		return green
	case r.bad():
		return red
	}
	return plain
}
