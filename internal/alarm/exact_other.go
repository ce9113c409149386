//go:build !linux

package alarm

import "time"

// exact is not to be had here.
type exact struct{}

func newExact() *exact { return nil }

func (*exact) set(time.Duration) {}
func (*exact) wait(func())       {}
func (*exact) close()            {}
