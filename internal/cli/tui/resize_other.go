//go:build !unix

package tui

import "os"

// Resized gets nothing: there is no screen on such a system.
func Resized() (changes <-chan os.Signal, stop func()) { return nil, func() {} }
