package dev

import (
	"fmt"
	"io"
	"strings"
)

// Control sequences of the live view. It has the alternate screen to itself, so
// that what the terminal showed before comes back at the end.
const (
	ctlEnter      = "\x1b[?1049h\x1b[?25l\x1b[2J" // alternate screen, no cursor, empty
	ctlLeave      = "\x1b[?25h\x1b[?1049l"
	ctlHome       = "\x1b[H"
	ctlClearLine  = "\x1b[K"      // clears the rest of the line
	ctlClearBelow = "\x1b[0J"     // clears what is below
	ctlHold       = "\x1b[?2026h" // shows nothing until release, where known
	ctlShow       = "\x1b[?2026l"
)

// screen draws frames on a terminal.
type screen struct {
	out     io.Writer
	size    func() (width, height int)
	colours bool
}

func (s screen) enter() { fmt.Fprint(s.out, ctlEnter) }
func (s screen) leave() { fmt.Fprint(s.out, ctlLeave) }

// draw shows a frame in one write, over the last one.
func (s screen) draw(f frame) {
	width, height := s.size()
	var b strings.Builder
	b.WriteString(ctlHold + ctlHome)
	for i, l := range f.lines(width, height) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l.text(s.colours) + ctlClearLine)
	}
	b.WriteString(ctlClearBelow + ctlShow)
	fmt.Fprint(s.out, b.String())
}

// keep prints the last state of the jobs below what the terminal showed before.
func (s screen) keep(f frame) {
	width, _ := s.size()
	c := columnsFor(width)
	fmt.Fprintln(s.out, c.head().clip(width).text(s.colours))
	for _, r := range f.rows {
		fmt.Fprintln(s.out, c.row(f.now, r).clip(width).text(s.colours))
	}
}
