package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/cli/tui"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// gridColumn is one of a table of the view.
type gridColumn struct {
	title string
	// width is the least one; negative: to the left.
	width int
	// rank orders the columns that are left out when there is no room: the greatest first; 0 is never left out
	rank int
	// text takes the room that the others leave, down to its least width.
	text bool
}

// gridCell is one cell of a row.
type gridCell struct {
	style tui.Style
	text  string
}

// textGrid is a table before it is fitted to a width. Its first column has the names of the rows.
type textGrid struct {
	columns []gridColumn
	rows    [][]gridCell
}

func (g *textGrid) addRow(cells ...gridCell) { g.rows = append(g.rows, cells) }

const (
	// minNameWidth and maxFigureWidth bound the column of names, so that figures have room.
	minNameWidth   = 20
	maxFigureWidth = 78
)

// renderLines fits a grid to a width; 0 means no limit. All tables have name columns of the same width. The last
// shown column has no trailing spaces.
func (g textGrid) renderLines(width, longest int) (head tui.Line, rows []tui.Line) {
	widths := g.columnWidths(width, longest)
	var last int
	for i, w := range widths {
		if w != 0 {
			last = i
		}
	}
	line := func(style func(i int) tui.Style, text func(i int) string) (l tui.Line) {
		for i, w := range widths {
			if w == 0 {
				continue
			}
			t := tui.Left(text(i), max(0, -w))
			if w > 0 {
				t = tui.Right(text(i), w)
			}
			if i < last {
				t += " "
			} else if style(i) != tui.Ruled {
				t = strings.TrimRight(t, " ")
			}
			l = append(l, style(i).Of(t))
		}
		return l
	}
	head = line(func(int) tui.Style { return tui.Ruled }, func(i int) string { return g.columns[i].title })
	for _, row := range g.rows {
		rows = append(rows, line(func(i int) tui.Style { return row[i].style },
			func(i int) string { return row[i].text }))
	}
	return head, rows
}

// columnWidths returns the widths of the columns; 0 leaves the column out.
func (g textGrid) columnWidths(width, longest int) []int {
	widths := make([]int, len(g.columns))
	for i, c := range g.columns {
		widths[i] = c.width
	}
	name := max(minNameWidth, longest)
	if width > 0 {
		name = min(name, max(minNameWidth, width-maxFigureWidth))
	}
	widths[0] = -name
	for width > 0 && totalWidth(widths) > width {
		out := 0
		for i, c := range g.columns {
			if widths[i] != 0 && c.rank > g.columns[out].rank {
				out = i
			}
		}
		if out == 0 {
			break
		}
		widths[out] = 0
	}
	for i, c := range g.columns {
		if !c.text || widths[i] == 0 {
			continue
		}
		most := utf8.RuneCountInString(c.title)
		for _, row := range g.rows {
			most = max(most, utf8.RuneCountInString(row[i].text))
		}
		if width > 0 {
			most = min(most, width-totalWidth(widths)-widths[i])
		}
		widths[i] = -max(-widths[i], most)
	}
	return widths
}

// totalWidth is the width of a line.
func totalWidth(widths []int) int {
	sum := -1
	for _, w := range widths {
		if w != 0 {
			sum += max(w, -w) + 1
		}
	}
	return sum
}

// alarmStyle colours a figure that is not as it should be.
func alarmStyle(bad bool, style tui.Style) tui.Style {
	if bad {
		return style
	}
	return tui.Plain
}

func (v *topView) queueGrid() textGrid {
	g := textGrid{columns: []gridColumn{
		{title: "QUEUE"}, {title: "BACKLOG", width: 7, rank: 1}, {title: "OLDEST", width: 7, rank: 5},
		{title: "RUNNING", width: 7, rank: 4},
		{title: "FREE", width: 5, rank: 6}, {title: "STARTS/S", width: 8, rank: 9},
		{title: "FAILS/S", width: 7, rank: 7}, {title: "MAX LAG", width: 7, rank: 8},
		{title: "BREACHES", width: 8, rank: 10}, {title: "DEAD", width: 5, rank: 3},
		{title: "PAUSED", width: 6, rank: 2},
	}}
	for _, q := range v.order.sortQueues(v.last.queues) {
		r := q.GetRecentRuns()
		starved := q.GetBacklog() > 0 && q.GetFreeSlots() == 0
		g.addRow(
			gridCell{tui.Plain, tui.StripControls(q.GetNamespace() + "/" + q.GetQueue())},
			gridCell{alarmStyle(q.GetBacklog() > 0, tui.Yellow), tui.FormatCount(q.GetBacklog())},
			gridCell{alarmStyle(q.GetOldestOverdue().AsDuration() >= time.Minute, tui.Red),
				waitText(q.GetOldestOverdue().AsDuration())},
			gridCell{tui.Plain, tui.FormatCount(q.GetRunning())},
			gridCell{alarmStyle(starved, tui.Red), tui.FormatCount(q.GetFreeSlots())},
			gridCell{tui.Plain, perSecond(r.GetStarted(), r)},
			gridCell{alarmStyle(r.GetFailed() > 0, tui.Red), perSecond(r.GetFailed(), r)},
			gridCell{alarmStyle(r.GetMaxLag().AsDuration() >= time.Second, tui.Yellow),
				waitText(r.GetMaxLag().AsDuration())},
			gridCell{alarmStyle(r.GetBreaches() > 0, tui.Red), tui.FormatCount(r.GetBreaches())},
			gridCell{alarmStyle(q.GetDead() > 0, tui.Red), tui.FormatCount(q.GetDead())},
			gridCell{alarmStyle(q.GetPaused() > 0 || q.GetQueuePaused(), tui.Magenta), pausedOf(q)},
		)
	}
	return g
}

// pausedOf is how many jobs of a queue are paused.
func pausedOf(q *fermatav1.Queue) string {
	if q.GetQueuePaused() {
		return "all"
	}
	return tui.FormatCount(q.GetPaused())
}

// perSecond is a rate of the last minute.
func perSecond(n int64, r *fermatav1.RecentRuns) string {
	span := r.GetSpan().AsDuration().Seconds()
	if span <= 0 {
		return noValue
	}
	rate := float64(n) / span
	if rate >= 100 {
		return tui.FormatCount(int64(rate))
	}
	return strconv.FormatFloat(rate, 'f', 1, 64)
}

// waitText formats a waiting time; zero is the good case.
func waitText(d time.Duration) string {
	if d <= 0 {
		return noValue
	}
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return tui.FormatDuration(d)
}

func jobName(j *fermatav1.Job) string {
	namespace, id := splitJobName(j)
	return tui.StripControls(namespace + "/" + id)
}

func (v *topView) failingGrid() textGrid {
	g := textGrid{columns: []gridColumn{
		{title: "FAILING JOB"}, {title: "FAILURES", width: 8, rank: 1}, {title: "NEXT RUN", width: -14, rank: 3},
		{title: "LAST ERROR", width: -16, rank: 2, text: true},
	}}
	for _, t := range v.last.failing {
		st := t.GetJob().GetStatus()
		failures := strconv.FormatInt(st.GetConsecutiveFailures(), 10)
		if st.GetConsecutiveFailures() == 0 {
			failures = fmt.Sprintf("try %d", st.GetCurrentAttempt())
		}
		g.addRow(gridCell{tui.Plain, jobName(t.GetJob())}, gridCell{tui.Red, failures},
			gridCell{tui.Plain, v.app.nextRun(t.GetJob())}, gridCell{tui.Dim, tui.StripControls(st.GetLastError())})
	}
	return g
}

func (v *topView) lateGrid() textGrid {
	g := textGrid{columns: []gridColumn{
		{title: "LATE JOB"}, {title: "LATE BY", width: 8, rank: 1}, {title: "MAX LAG", width: 7, rank: 4},
		{title: "RUN", width: -8, rank: 3},
		{title: "HELD", width: -16, rank: 2, text: true},
	}}
	for _, t := range v.last.late {
		run := "started"
		if t.GetWaiting() {
			run = "waits"
		}
		g.addRow(gridCell{tui.Plain, jobName(t.GetJob())}, gridCell{tui.Yellow, waitText(t.GetLag().AsDuration())},
			gridCell{tui.Plain, waitText(t.GetJob().GetMaxLag().AsDuration())}, gridCell{tui.Plain, run},
			gridCell{tui.Dim, tui.StripControls(v.app.holdText(t.GetJob().GetStatus().GetHold()))})
	}
	return g
}

func (v *topView) nodeGrid() textGrid {
	g := textGrid{columns: []gridColumn{
		{title: "NODE"}, {title: "STATE", width: -11, rank: 1}, {title: "SHARDS", width: 6, rank: 3},
		{title: "WORKERS", width: 7, rank: 4},
		{title: "SLOTS BUSY", width: 11, rank: 2}, {title: "UP", width: 7, rank: 5},
		{title: "VERSION", width: -7, rank: 6, text: true},
	}}
	for _, n := range v.last.nodes {
		state, style := "serving", tui.Green
		switch {
		case n.GetUnreachable():
			state, style = "unreachable", tui.Red
		case n.GetDraining():
			state, style = "draining", tui.Yellow
		}
		running, slots := v.last.slotsOfNode(n.GetName())
		up := noValue
		if n.GetStartTime() != nil {
			up = tui.FormatDuration(v.last.at.Sub(n.GetStartTime().AsTime()))
		}
		g.addRow(gridCell{tui.Plain, tui.StripControls(n.GetName())}, gridCell{style, state},
			gridCell{tui.Plain, fmt.Sprint(n.GetShardsHeld())}, gridCell{tui.Plain, fmt.Sprint(n.GetWorkers())},
			gridCell{tui.Plain, fmt.Sprintf("%d/%d", running, slots)}, gridCell{tui.Plain, up},
			gridCell{tui.Dim, tui.StripControls(n.GetVersion())})
	}
	for _, n := range v.last.lost {
		g.addRow(gridCell{tui.Plain, tui.StripControls(n.GetName())}, gridCell{tui.Red, "lost"},
			gridCell{tui.Plain, noValue}, gridCell{tui.Plain, noValue}, gridCell{tui.Plain, noValue},
			gridCell{tui.Plain, noValue}, gridCell{tui.Dim, tui.StripControls(n.GetVersion())})
	}
	return g
}

// errorLine returns the error of a call in one line.
func errorLine(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
