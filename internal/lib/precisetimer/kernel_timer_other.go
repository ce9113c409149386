//go:build !linux

package precisetimer

import "time"

// kernelTimer is not available here.
type kernelTimer struct{}

func newKernelTimer() *kernelTimer { return nil }

func (*kernelTimer) setTimer(time.Duration) {}
func (*kernelTimer) callOnExpiry(func())    {}
func (*kernelTimer) stopTimer()             {}
