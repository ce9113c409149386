package tui

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/term"
)

// Control sequences of a live view. It has the alternate screen to itself, so
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

// Screen draws frames on a terminal.
type Screen struct {
	Out io.Writer
	// Size is asked for each frame, so that a terminal may change its size.
	Size    func() (width, height int)
	Colours bool
}

// On returns a screen for a writer, if that is a terminal which can show one. NO_COLOR
// and TERM=dumb are heeded.
func On(out io.Writer) (Screen, bool) {
	file, isFile := out.(*os.File)
	// Consoles of Windows want to be asked for control codes first.
	if !isFile || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" {
		return Screen{}, false
	}
	return Screen{Out: file, Colours: os.Getenv("NO_COLOR") == "", Size: func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width == 0 || height == 0 {
			return 80, 24 // a terminal that does not know
		}
		return width, height
	}}, true
}

// EnterFullScreen takes the terminal over.
func (s Screen) EnterFullScreen() { fmt.Fprint(s.Out, ctlEnter) }

// LeaveFullScreen gives it back.
func (s Screen) LeaveFullScreen() { fmt.Fprint(s.Out, ctlLeave) }

// Draw shows a frame in one write, over the last one. The lines fit the screen.
func (s Screen) Draw(lines []Line) {
	var b strings.Builder
	b.WriteString(ctlHold + ctlHome)
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l.Text(s.Colours) + ctlClearLine)
	}
	b.WriteString(ctlClearBelow + ctlShow)
	fmt.Fprint(s.Out, b.String())
}
