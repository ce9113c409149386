package playground

import (
	"fmt"
	"io"

	"github.com/fermata-io/fermata/internal/cli/tui"
)

// output shows what happens, live or line by line.
type output interface {
	begin(frame)
	// update shows the state, and what has happened since the last update.
	update(f frame, fresh []event)
	// end comes last, and leaves the terminal as it was.
	end(frame)
}

// outputFor chooses: a live view on a terminal that can show one, else lines.
func outputFor(o Options) output {
	if view, ok := tui.On(o.Out); ok && !o.Plain {
		return live{view}
	}
	return &lines{out: o.Out}
}

// live shows frames on a terminal.
type live struct{ tui.Screen }

func (l live) begin(f frame) {
	l.Enter()
	l.draw(f)
}

func (l live) update(f frame, _ []event) { l.draw(f) }

func (l live) end(f frame) {
	l.Leave()
	l.keep(f)
	if f.notice != "" {
		fmt.Fprintln(l.Out, f.notice)
	}
}

func (l live) draw(f frame) { l.Draw(f.lines(l.Size())) }

// keep prints the last state of the jobs below what the terminal showed before.
func (l live) keep(f frame) {
	width, _ := l.Size()
	c := columnsFor(width)
	fmt.Fprintln(l.Out, c.head().Clip(width).Text(l.Colours))
	for _, r := range f.rows {
		fmt.Fprintln(l.Out, c.row(f.now, r).Clip(width).Text(l.Colours))
	}
}

// lines writes one line an event, without control codes.
type lines struct {
	out    io.Writer
	notice string // the last one
}

func (l *lines) begin(f frame) {
	fmt.Fprintln(l.out, "Fermata dev: everything in one process; nothing is kept after exit")
	for _, h := range f.facts.lines(f.mode) {
		fmt.Fprintln(l.out, h.Text(false))
	}
	for _, r := range f.rows {
		fmt.Fprintln(l.out, event{at: f.now, job: r.name, text: "registered" + next(f.now, r)}.line().Text(false))
	}
}

func (l *lines) update(f frame, fresh []event) {
	for _, e := range fresh {
		fmt.Fprintln(l.out, e.line().Text(false))
	}
	if f.notice != l.notice && f.notice != "" {
		fmt.Fprintln(l.out, event{at: f.now, text: f.notice}.line().Text(false))
	}
	l.notice = f.notice
}

func (l *lines) end(f frame) { l.update(f, nil) }
