//go:build !linux

package alarm

import "time"

// kernelTimer is not available here.
type exact struct{}

func newExact() *exact { return nil }

func (*exact) set(time.Duration) {}
func (*exact) wait(func())       {}
func (*exact) close()            {}
