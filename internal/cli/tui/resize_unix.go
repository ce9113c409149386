//go:build unix

package tui

import (
	"os"
	"os/signal"
	"syscall"
)

// Resized gets a value after the terminal has changed its size, until stop is called.
func Resized() (changes <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	return c, func() { signal.Stop(c) }
}
