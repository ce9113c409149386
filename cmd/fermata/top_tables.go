package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/screen"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// nameWidth is that of the first column: what the figures leave.
func nameWidth(width int) int { return min(44, max(20, width-78)) }

// cell is one column of a row.
type cell struct {
	style screen.Style
	text  string
	width int // negative: to the left
}

func tableRow(cells ...cell) (l screen.Line) {
	for i, c := range cells {
		text := screen.Left(c.text, max(0, -c.width))
		if c.width > 0 {
			text = screen.Right(c.text, c.width)
		}
		if i+1 < len(cells) {
			text += " "
		} else if c.style != screen.Ruled {
			text = strings.TrimRight(text, " ")
		}
		l = append(l, c.style.Of(text))
	}
	return l
}

// heads are the cells of a heading.
func heads(cells ...cell) screen.Line {
	for i := range cells {
		cells[i].style = screen.Ruled
	}
	return tableRow(cells...)
}

// alarm colours a figure that is not as it should be.
func alarm(bad bool, style screen.Style) screen.Style {
	if bad {
		return style
	}
	return screen.Plain
}

func (v *topView) queues(width int) section {
	name := -nameWidth(width)
	s := section{
		head: heads(cell{text: "QUEUE", width: name}, cell{text: "BACKLOG", width: 7}, cell{text: "OLDEST", width: 7}, cell{text: "RUNNING", width: 7},
			cell{text: "FREE", width: 5}, cell{text: "STARTS/S", width: 8}, cell{text: "FAILS/S", width: 7}, cell{text: "MAX LAG", width: 7},
			cell{text: "BREACHES", width: 8}, cell{text: "DEAD", width: 5}, cell{text: "PAUSED", width: 6}),
		none: "no queues",
	}
	for _, q := range v.order.sorted(v.last.queues) {
		r := q.GetRecent()
		starved := q.GetBacklog() > 0 && q.GetFreeSlots() == 0
		s.rows = append(s.rows, tableRow(
			cell{screen.Plain, screen.Clean(q.GetNamespace() + "/" + q.GetQueue()), name},
			cell{alarm(q.GetBacklog() > 0, screen.Yellow), screen.Compact(q.GetBacklog()), 7},
			cell{alarm(q.GetOldestOverdue().AsDuration() >= time.Minute, screen.Red), waited(q.GetOldestOverdue().AsDuration()), 7},
			cell{screen.Plain, screen.Compact(q.GetRunning()), 7},
			cell{alarm(starved, screen.Red), screen.Compact(q.GetFreeSlots()), 5},
			cell{screen.Plain, perSecond(r.GetStarted(), r), 8},
			cell{alarm(r.GetFailed() > 0, screen.Red), perSecond(r.GetFailed(), r), 7},
			cell{alarm(r.GetMaxLag().AsDuration() >= time.Second, screen.Yellow), waited(r.GetMaxLag().AsDuration()), 7},
			cell{alarm(r.GetBreaches() > 0, screen.Red), screen.Compact(r.GetBreaches()), 8},
			cell{alarm(q.GetDead() > 0, screen.Red), screen.Compact(q.GetDead()), 5},
			cell{alarm(q.GetPaused() > 0 || q.GetQueuePaused(), screen.Magenta), pausedOf(q), 6},
		))
	}
	return s
}

// pausedOf is how many jobs of a queue are paused.
func pausedOf(q *fermatav1.Queue) string {
	if q.GetQueuePaused() {
		return "all"
	}
	return screen.Compact(q.GetPaused())
}

// perSecond is a rate of the last minute.
func perSecond(n int64, r *fermatav1.RecentRuns) string {
	span := r.GetSpan().AsDuration().Seconds()
	if span <= 0 {
		return none
	}
	rate := float64(n) / span
	if rate >= 100 {
		return screen.Compact(int64(rate))
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
	return screen.Tidy(d)
}

func jobName(j *fermatav1.Job) string {
	namespace, id := jobParts(j)
	return screen.Clean(namespace + "/" + id)
}

func (v *topView) failing(width int) section {
	name := -nameWidth(width)
	s := section{
		head: heads(cell{text: "FAILING JOB", width: name}, cell{text: "FAILURES", width: 8}, cell{text: "NEXT RUN", width: -14}, cell{text: "LAST ERROR", width: -64}),
		none: "no job fails",
	}
	for _, t := range v.last.failing {
		st := t.GetJob().GetStatus()
		failures := strconv.FormatInt(st.GetConsecutiveFailures(), 10)
		if st.GetConsecutiveFailures() == 0 {
			failures = fmt.Sprintf("try %d", st.GetCurrentAttempt())
		}
		s.rows = append(s.rows, tableRow(cell{screen.Plain, jobName(t.GetJob()), name}, cell{screen.Red, failures, 8},
			cell{screen.Plain, v.app.nextRun(t.GetJob()), -14}, cell{screen.Dim, screen.Clean(st.GetLastError()), -64}))
	}
	return s
}

func (v *topView) late(width int) section {
	name := -nameWidth(width)
	s := section{
		head: heads(cell{text: "LATE JOB", width: name}, cell{text: "LATE BY", width: 8}, cell{text: "MAX LAG", width: 7}, cell{text: "RUN", width: -8}, cell{text: "HELD", width: -48}),
		none: "no job is late",
	}
	for _, t := range v.last.late {
		run := "started"
		if t.GetWaiting() {
			run = "waits"
		}
		s.rows = append(s.rows, tableRow(cell{screen.Plain, jobName(t.GetJob()), name}, cell{screen.Yellow, waited(t.GetLag().AsDuration()), 8},
			cell{screen.Plain, waited(t.GetJob().GetMaxLag().AsDuration()), 7}, cell{screen.Plain, run, -8},
			cell{screen.Dim, screen.Clean(v.app.holdText(t.GetJob().GetStatus().GetHold())), -48}))
	}
	return s
}

func (v *topView) nodes(width int) section {
	name := -nameWidth(width)
	s := section{
		head: heads(cell{text: "NODE", width: name}, cell{text: "STATE", width: -11}, cell{text: "SHARDS", width: 6}, cell{text: "WORKERS", width: 7},
			cell{text: "SLOTS BUSY", width: 11}, cell{text: "UP", width: 7}, cell{text: "VERSION", width: -20}),
		none: "no nodes",
	}
	for _, n := range v.last.nodes {
		state, style := "serving", screen.Green
		switch {
		case n.GetUnreachable():
			state, style = "unreachable", screen.Red
		case n.GetDraining():
			state, style = "draining", screen.Yellow
		}
		running, slots := v.last.slots(n.GetName())
		up := none
		if n.GetStartTime() != nil {
			up = screen.Tidy(v.last.at.Sub(n.GetStartTime().AsTime()))
		}
		s.rows = append(s.rows, tableRow(cell{screen.Plain, screen.Clean(n.GetName()), name}, cell{style, state, -11},
			cell{screen.Plain, fmt.Sprint(n.GetShardsHeld()), 6}, cell{screen.Plain, fmt.Sprint(n.GetWorkers()), 7},
			cell{screen.Plain, fmt.Sprintf("%d/%d", running, slots), 11}, cell{screen.Plain, up, 7}, cell{screen.Dim, screen.Clean(n.GetVersion()), -20}))
	}
	return s
}

// said is what an error of a call says to people.
func said(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
