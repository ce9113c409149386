//go:build unix

package dev

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize is the size of the terminal that f is, if it is one.
func terminalSize(f *os.File) (width, height int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}
