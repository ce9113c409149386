package playground

import (
	"fmt"
	"io"

	"github.com/fermata-io/fermata/internal/cli/tui"
)

// display shows what happens, live or line by line.
type display interface {
	showFirst(frame)
	// showUpdate shows the state, and what has happened since the last update.
	showUpdate(f frame, fresh []jobEvent)
	// showLast comes last, and leaves the terminal as it was.
	showLast(frame)
}

// outputFor chooses: a live view on a terminal that can show one, else lines.
func outputFor(o Options) display {
	if view, ok := tui.On(o.Out); ok && !o.Plain {
		return liveDisplay{view}
	}
	return &lineDisplay{out: o.Out}
}

// liveDisplay shows frames on a terminal.
type liveDisplay struct{ tui.Screen }

func (l liveDisplay) showFirst(f frame) {
	l.EnterFullScreen()
	l.drawFrame(f)
}

func (l liveDisplay) showUpdate(f frame, _ []jobEvent) { l.drawFrame(f) }

func (l liveDisplay) showLast(f frame) {
	l.LeaveFullScreen()
	l.printKept(f)
	if f.notice != "" {
		fmt.Fprintln(l.Out, f.notice)
	}
}

func (l liveDisplay) drawFrame(f frame) { l.Draw(f.renderLines(l.Size())) }

// printKept prints the last state of the jobs below what the terminal showed before.
func (l liveDisplay) printKept(f frame) {
	width, _ := l.Size()
	c := columnsFor(width)
	fmt.Fprintln(l.Out, c.headLine().Clip(width).Text(l.Colours))
	for _, r := range f.rows {
		fmt.Fprintln(l.Out, c.rowLine(f.now, r).Clip(width).Text(l.Colours))
	}
}

// lineDisplay writes one line an event, without control codes.
type lineDisplay struct {
	out    io.Writer
	notice string // the last one
}

func (l *lineDisplay) showFirst(f frame) {
	fmt.Fprintln(l.out, "Fermata dev: everything in one process; nothing is kept after exit")
	for _, h := range f.facts.renderLines(f.mode) {
		fmt.Fprintln(l.out, h.Text(false))
	}
	for _, r := range f.rows {
		fmt.Fprintln(l.out, jobEvent{at: f.now, job: r.name,
			text: "registered" + nextText(f.now, r)}.renderLine().Text(false))
	}
}

func (l *lineDisplay) showUpdate(f frame, fresh []jobEvent) {
	for _, e := range fresh {
		fmt.Fprintln(l.out, e.renderLine().Text(false))
	}
	if f.notice != l.notice && f.notice != "" {
		fmt.Fprintln(l.out, jobEvent{at: f.now, text: f.notice}.renderLine().Text(false))
	}
	l.notice = f.notice
}

func (l *lineDisplay) showLast(f frame) { l.showUpdate(f, nil) }
