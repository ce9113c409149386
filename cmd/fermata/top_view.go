package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/cli/tui"
)

const keyHelp = "q quits; b, o, l, s, f, n sort the queues by backlog, oldest, lag, starts, failures, name; space " +
	"freezes the view"

// topView is the state of fermata top.
type topView struct {
	app      *app
	order    queueOrder
	interval time.Duration
	paused   bool
	last     clusterSnapshot
	trouble  error // of the last poll
}

// applySnapshot applies the result of a poll. The last data stays while the cluster does not answer.
func (v *topView) applySnapshot(p clusterSnapshot) {
	v.trouble = p.err
	if p.err == nil {
		v.last = p
	}
}

// viewSection is a table of the view.
type viewSection struct {
	head tui.Line
	rows []tui.Line
	none string // shown if there are no rows
}

// renderLines lays the view out for a terminal; a width or height of 0 is without bound. Where there
// is no room for all rows, each section gets as much as others leave, the first ones first.
func (v *topView) renderLines(width, height int) []tui.Line {
	out := append([]tui.Line{v.titleLine(width)}, wrapSpans(v.summarySpans(), "  ", width)...)
	foot := v.footerLines(width, height == 0)
	sections := v.buildSections(width)
	room := -1
	if height > 0 {
		room = max(0, height-len(out)-len(foot))
	}
	for i, n := range shareLines(sections, room) {
		out = append(out, sections[i].renderLines(n, width)...)
	}
	out = append(out, foot...)
	if height > 0 {
		out = out[:min(len(out), height)]
	}
	if width > 0 {
		for i := range out {
			out[i] = out[i].Clip(width)
		}
	}
	return out
}

// wrapSpans puts as many parts into each line as fit; width 0 means no limit.
func wrapSpans(parts []tui.Span, gap string, width int) (lines []tui.Line) {
	var l tui.Line
	for _, part := range parts {
		next := append(slices.Clone(l), tui.Plain.Of(gap), part)
		switch {
		case len(l) == 0:
			next = tui.Line{part}
		case width > 0 && next.Width() > width:
			lines = append(lines, l)
			next = tui.Line{part}
		}
		l = next
	}
	return append(lines, l)
}

// buildSections returns the sections that have data.
func (v *topView) buildSections(width int) (all []viewSection) {
	if v.last.at.IsZero() {
		return nil
	}
	tables := []struct {
		name, none string
		grid       textGrid
	}{
		{"queues", "no queues", v.queueGrid()}, {"failing jobs", "no job fails", v.failingGrid()},
		{"late jobs", "no job is late", v.lateGrid()}, {"nodes", "no nodes", v.nodeGrid()},
	}
	longest := 0
	for _, t := range tables {
		for _, row := range t.grid.rows {
			longest = max(longest, utf8.RuneCountInString(row[0].text))
		}
	}
	for _, t := range tables {
		if v.last.isDenied(t.name) {
			continue
		}
		head, rows := t.grid.renderLines(width, longest)
		all = append(all, viewSection{head: head, rows: rows, none: t.none})
	}
	return all
}

// frameLines are the empty line before a section and its heading.
const frameLines = 2

// shareLines returns how many rows each section shows; -1 leaves the section out. A negative room is unlimited.
func shareLines(sections []viewSection, room int) []int {
	shown := make([]int, len(sections))
	if room < 0 {
		for i, s := range sections {
			shown[i] = len(s.rows)
		}
		return shown
	}
	for i, s := range sections {
		if need := frameLines + 1; room >= need {
			shown[i] = min(1, len(s.rows))
			room -= need
		} else {
			shown[i] = -1
		}
	}
	for more := true; more && room > 0; {
		more = false
		for i, s := range sections {
			if shown[i] >= 0 && shown[i] < len(s.rows) && room > 0 {
				shown[i]++
				room--
				more = true
			}
		}
	}
	return shown
}

// renderLines returns a section with n rows. The last line counts the rows that do not fit; if only one row fits,
// its end counts them.
func (s viewSection) renderLines(n, width int) []tui.Line {
	if n < 0 {
		return nil
	}
	out := []tui.Line{{}, s.head}
	switch {
	case len(s.rows) == 0:
		return append(out, tui.Line{tui.Dim.Of(s.none)})
	case n == 1 && len(s.rows) > 1:
		more, row := fmt.Sprintf("  and %d more", len(s.rows)-1), slices.Clone(s.rows[0])
		if width > 0 {
			row = row.Clip(max(0, width-len(more)))
		}
		return append(out, append(row, tui.Dim.Of(more)))
	case n > 1 && n < len(s.rows):
		more := len(s.rows) - n + 1
		return append(append(out, s.rows[:n-1]...), tui.Line{tui.Dim.Of(fmt.Sprintf("and %d more", more))})
	}
	return append(out, s.rows[:n]...)
}

func (v *topView) titleLine(width int) tui.Line {
	l := tui.Line{tui.Bold.Of("Fermata top")}
	state := fmt.Sprintf("every %s", tui.FormatDuration(v.interval))
	if v.paused {
		state = "held: space goes on"
	}
	if !v.last.at.IsZero() {
		state += "  " + v.last.at.Local().Format("15:04:05")
	}
	gap := width - l.Width() - len(state)
	if width == 0 {
		gap = 2
	}
	if gap > 0 {
		l = append(l, tui.Plain.Of(tui.Right("", gap)), tui.Dim.Of(state))
	}
	return l
}

// summarySpans is the cluster in a few figures.
func (v *topView) summarySpans() (parts []tui.Span) {
	p := v.last
	if p.at.IsZero() {
		return []tui.Span{tui.Dim.Of("asking")}
	}
	add := func(style tui.Style, format string, args ...any) {
		parts = append(parts, style.Of(fmt.Sprintf(format, args...)))
	}
	if !p.isDenied("nodes") {
		add(tui.Plain, "%s", tui.Plural(int64(len(p.nodes)), "node"))
	}
	if !p.isDenied("shards") {
		unheld := 0
		for _, s := range p.shards {
			if s.GetHolder() == "" {
				unheld++
			}
		}
		add(tui.Plain, "%s", tui.Plural(int64(len(p.shards)), "shard"))
		if unheld > 0 {
			add(tui.Red, "%d without a holder", unheld)
		}
	}
	if !p.isDenied("workers") {
		running, slots := p.slotsOfNode("")
		add(tui.Plain, "%s", tui.Plural(int64(len(p.workers)), "worker"))
		add(tui.Plain, "%d of %d slots busy", running, slots)
	}
	var backlog, started, failed int64
	for _, q := range p.queues {
		backlog += q.GetBacklog()
		started += q.GetRecentRuns().GetStarted()
		failed += q.GetRecentRuns().GetFailed()
	}
	add(tui.Plain, "backlog %d", backlog)
	add(tui.Plain, "%d starts, %d failures in the last minute", started, failed)
	return parts
}

func (p clusterSnapshot) isDenied(what string) bool { return slices.Contains(p.denied, what) }

// slotsOfNode counts those of the workers of a node, or of all.
func (p clusterSnapshot) slotsOfNode(node string) (running, slots int32) {
	for _, w := range p.workers {
		if node == "" || w.GetNode() == node {
			running += w.GetRunning()
			slots += w.GetSlots()
		}
	}
	return running, slots
}

// footerLines returns the current error and the keys.
func (v *topView) footerLines(width int, printed bool) []tui.Line {
	var out []tui.Line
	if v.trouble != nil {
		trouble := "The cluster does not answer: " + tui.StripControls(errorLine(v.trouble))
		out = append(out, tui.Line{}, tui.Line{tui.Yellow.Of(trouble)})
	}
	var notes []tui.Span
	if len(v.last.denied) > 0 {
		notes = append(notes, tui.Yellow.Of("Not allowed to see "+strings.Join(v.last.denied, ", ")+"."))
	}
	if len(v.last.namespaces) > 0 {
		notes = append(notes, tui.Dim.Of("Shown: "+tui.StripControls(strings.Join(v.last.namespaces, ", "))+"."))
	}
	if len(notes) > 0 {
		out = append(append(out, tui.Line{}), wrapSpans(notes, " ", width)...)
	}
	if !printed {
		keys := []tui.Span{tui.Dim.Of("q quit"), tui.Plain.Of("sort: " + v.order.name)}
		for _, key := range []string{"b backlog", "o oldest", "l lag", "s starts", "f failures", "n name",
			"space hold"} {
			keys = append(keys, tui.Dim.Of(key))
		}
		out = append(append(out, tui.Line{}), wrapSpans(keys, "  ", width)...)
	}
	return out
}
