package node

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTheSharedClockNeverGoesBack: it follows Redis's clock forward, and this host's while that has gone back.
func TestTheSharedClockNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c sharedClock
		if got := time.Until(c.now()); got != 0 {
			t.Errorf("before the first measurement it is %v ahead", got)
		}
		steps := []struct{ redis, want time.Duration }{ // ahead of this host
			{-time.Hour, -time.Hour}, {-time.Minute, -time.Minute}, {-time.Hour, -time.Minute}, {time.Second, time.Second}, {0, time.Second},
		}
		for i, step := range steps {
			c.observe(time.Now().Add(step.redis))
			time.Sleep(time.Minute)
			if got := time.Until(c.now()); got != step.want {
				t.Errorf("after step %d it is %v ahead, want %v", i, got, step.want)
			}
		}
	})
}
