package dev

import (
	"fmt"
	"io"
	"os"
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
	file, isFile := o.Out.(*os.File)
	if !isFile || o.Plain || os.Getenv("TERM") == "dumb" {
		return &lines{out: o.Out}
	}
	if _, _, ok := terminalSize(file); !ok {
		return &lines{out: o.Out}
	}
	return screen{out: file, colours: os.Getenv("NO_COLOR") == "", size: func() (int, int) {
		width, height, _ := terminalSize(file)
		if width == 0 || height == 0 {
			return 80, 24 // a terminal that does not know
		}
		return width, height
	}}
}

func (s screen) begin(f frame) {
	s.enter()
	s.draw(f)
}

func (s screen) update(f frame, _ []event) { s.draw(f) }

func (s screen) end(f frame) {
	s.leave()
	s.keep(f)
	if f.notice != "" {
		fmt.Fprintln(s.out, f.notice)
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
		fmt.Fprintln(l.out, h.text(false))
	}
	for _, r := range f.rows {
		fmt.Fprintln(l.out, event{at: f.now, job: r.name, text: "registered" + next(f.now, r)}.line().text(false))
	}
}

func (l *lines) update(f frame, fresh []event) {
	for _, e := range fresh {
		fmt.Fprintln(l.out, e.line().text(false))
	}
	if f.notice != l.notice && f.notice != "" {
		fmt.Fprintln(l.out, event{at: f.now, text: f.notice}.line().text(false))
	}
	l.notice = f.notice
}

func (l *lines) end(f frame) { l.update(f, nil) }
