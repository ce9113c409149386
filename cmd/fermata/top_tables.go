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

// column is one of a table of the view.
type column struct {
	title string
	// width is the least one; negative: to the left.
	width int
	// rank says when a column is left out for want of room: the greatest first, and never 0.
	rank int
	// text takes the room that the others leave, down to its least width.
	text bool
}

// cell is what a row has in a column.
type cell struct {
	style tui.Style
	text  string
}

// grid is a table before it is fitted to a width. Its first column has the names of its rows.
type grid struct {
	columns []column
	rows    [][]cell
}

func (g *grid) add(cells ...cell) { g.rows = append(g.rows, cells) }

const (
	// leastName and mostFigures bound the column of names: figures have room beside it.
	leastName   = 20
	mostFigures = 78
)

// lines fits a grid to a width, 0 for one without a bound, with a column of names that is as wide as
// those of the other tables. The last column that stays has no spaces at its end.
func (g grid) lines(width, longest int) (head tui.Line, rows []tui.Line) {
	widths := g.widths(width, longest)
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
		rows = append(rows, line(func(i int) tui.Style { return row[i].style }, func(i int) string { return row[i].text }))
	}
	return head, rows
}

// widths are those of the columns, 0 for one that is left out.
func (g grid) widths(width, longest int) []int {
	widths := make([]int, len(g.columns))
	for i, c := range g.columns {
		widths[i] = c.width
	}
	name := max(leastName, longest)
	if width > 0 {
		name = min(name, max(leastName, width-mostFigures))
	}
	widths[0] = -name
	for width > 0 && taken(widths) > width {
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
			most = min(most, width-taken(widths)-widths[i])
		}
		widths[i] = -max(-widths[i], most)
	}
	return widths
}

// taken is the width of a line.
func taken(widths []int) int {
	sum := -1
	for _, w := range widths {
		if w != 0 {
			sum += max(w, -w) + 1
		}
	}
	return sum
}

// alarm colours a figure that is not as it should be.
func alarm(bad bool, style tui.Style) tui.Style {
	if bad {
		return style
	}
	return tui.Plain
}

func (v *topView) queues() grid {
	g := grid{columns: []column{
		{title: "QUEUE"}, {title: "BACKLOG", width: 7, rank: 1}, {title: "OLDEST", width: 7, rank: 5}, {title: "RUNNING", width: 7, rank: 4},
		{title: "FREE", width: 5, rank: 6}, {title: "STARTS/S", width: 8, rank: 9}, {title: "FAILS/S", width: 7, rank: 7}, {title: "MAX LAG", width: 7, rank: 8},
		{title: "BREACHES", width: 8, rank: 10}, {title: "DEAD", width: 5, rank: 3}, {title: "PAUSED", width: 6, rank: 2},
	}}
	for _, q := range v.order.sorted(v.last.queues) {
		r := q.GetRecent()
		starved := q.GetBacklog() > 0 && q.GetFreeSlots() == 0
		g.add(
			cell{tui.Plain, tui.Clean(q.GetNamespace() + "/" + q.GetQueue())},
			cell{alarm(q.GetBacklog() > 0, tui.Yellow), tui.Compact(q.GetBacklog())},
			cell{alarm(q.GetOldestOverdue().AsDuration() >= time.Minute, tui.Red), waited(q.GetOldestOverdue().AsDuration())},
			cell{tui.Plain, tui.Compact(q.GetRunning())},
			cell{alarm(starved, tui.Red), tui.Compact(q.GetFreeSlots())},
			cell{tui.Plain, perSecond(r.GetStarted(), r)},
			cell{alarm(r.GetFailed() > 0, tui.Red), perSecond(r.GetFailed(), r)},
			cell{alarm(r.GetMaxLag().AsDuration() >= time.Second, tui.Yellow), waited(r.GetMaxLag().AsDuration())},
			cell{alarm(r.GetBreaches() > 0, tui.Red), tui.Compact(r.GetBreaches())},
			cell{alarm(q.GetDead() > 0, tui.Red), tui.Compact(q.GetDead())},
			cell{alarm(q.GetPaused() > 0 || q.GetQueuePaused(), tui.Magenta), pausedOf(q)},
		)
	}
	return g
}

// pausedOf is how many jobs of a queue are paused.
func pausedOf(q *fermatav1.Queue) string {
	if q.GetQueuePaused() {
		return "all"
	}
	return tui.Compact(q.GetPaused())
}

// perSecond is a rate of the last minute.
func perSecond(n int64, r *fermatav1.RecentRuns) string {
	span := r.GetSpan().AsDuration().Seconds()
	if span <= 0 {
		return none
	}
	rate := float64(n) / span
	if rate >= 100 {
		return tui.Compact(int64(rate))
	}
	return strconv.FormatFloat(rate, 'f', 1, 64)
}

// waited words a time that is good to be zero.
func waited(d time.Duration) string {
	if d <= 0 {
		return none
	}
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return tui.Tidy(d)
}

func jobName(j *fermatav1.Job) string {
	namespace, id := jobParts(j)
	return tui.Clean(namespace + "/" + id)
}

func (v *topView) failing() grid {
	g := grid{columns: []column{
		{title: "FAILING JOB"}, {title: "FAILURES", width: 8, rank: 1}, {title: "NEXT RUN", width: -14, rank: 3}, {title: "LAST ERROR", width: -16, rank: 2, text: true},
	}}
	for _, t := range v.last.failing {
		st := t.GetJob().GetStatus()
		failures := strconv.FormatInt(st.GetConsecutiveFailures(), 10)
		if st.GetConsecutiveFailures() == 0 {
			failures = fmt.Sprintf("try %d", st.GetCurrentAttempt())
		}
		g.add(cell{tui.Plain, jobName(t.GetJob())}, cell{tui.Red, failures},
			cell{tui.Plain, v.app.nextRun(t.GetJob())}, cell{tui.Dim, tui.Clean(st.GetLastError())})
	}
	return g
}

func (v *topView) late() grid {
	g := grid{columns: []column{
		{title: "LATE JOB"}, {title: "LATE BY", width: 8, rank: 1}, {title: "MAX LAG", width: 7, rank: 4}, {title: "RUN", width: -8, rank: 3},
		{title: "HELD", width: -16, rank: 2, text: true},
	}}
	for _, t := range v.last.late {
		run := "started"
		if t.GetWaiting() {
			run = "waits"
		}
		g.add(cell{tui.Plain, jobName(t.GetJob())}, cell{tui.Yellow, waited(t.GetLag().AsDuration())},
			cell{tui.Plain, waited(t.GetJob().GetMaxLag().AsDuration())}, cell{tui.Plain, run},
			cell{tui.Dim, tui.Clean(v.app.holdText(t.GetJob().GetStatus().GetHold()))})
	}
	return g
}

func (v *topView) nodes() grid {
	g := grid{columns: []column{
		{title: "NODE"}, {title: "STATE", width: -11, rank: 1}, {title: "SHARDS", width: 6, rank: 3}, {title: "WORKERS", width: 7, rank: 4},
		{title: "SLOTS BUSY", width: 11, rank: 2}, {title: "UP", width: 7, rank: 5}, {title: "VERSION", width: -7, rank: 6, text: true},
	}}
	for _, n := range v.last.nodes {
		state, style := "serving", tui.Green
		switch {
		case n.GetUnreachable():
			state, style = "unreachable", tui.Red
		case n.GetDraining():
			state, style = "draining", tui.Yellow
		}
		running, slots := v.last.slots(n.GetName())
		up := none
		if n.GetStartTime() != nil {
			up = tui.Tidy(v.last.at.Sub(n.GetStartTime().AsTime()))
		}
		g.add(cell{tui.Plain, tui.Clean(n.GetName())}, cell{style, state},
			cell{tui.Plain, fmt.Sprint(n.GetShardsHeld())}, cell{tui.Plain, fmt.Sprint(n.GetWorkers())},
			cell{tui.Plain, fmt.Sprintf("%d/%d", running, slots)}, cell{tui.Plain, up}, cell{tui.Dim, tui.Clean(n.GetVersion())})
	}
	return g
}

// said is what an error of a call says to people.
func said(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
