package node

import (
	"testing"
	"time"
)

// TestReportsCountUntilNobodyTakesOver: a node that has given up its shards, which nobody takes, does not trust reports for a
// minute, and longer each time. Until it has given them up, reports count, also of nodes that hold none.
func TestReportsCountUntilNobodyTakesOver(t *testing.T) {
	var f reportFilter
	now := time.Unix(1_800_000_000, 0)
	step := func(after time.Duration, withdrawn, othersHold, want bool) {
		t.Helper()
		now = now.Add(after)
		f.withdrawn.Store(withdrawn)
		if got := f.accepts(othersHold, now); got != want {
			t.Errorf("withdrawn %v, others hold shards %v: %v", withdrawn, othersHold, got)
		}
	}
	step(0, false, true, true)
	step(time.Second, false, false, true) // it holds all
	step(time.Hour, true, false, true)    // others may be about to take them
	step(takeOverTime-1, true, false, true)
	step(time.Second, true, true, true) // one has
	for _, distrust := range []time.Duration{1, 2, 4, 8, 16, 16} {
		step(time.Second, true, false, true) // all have given up theirs
		step(takeOverTime, true, false, false)
		step(distrust*time.Minute-time.Second, false, false, false)
		step(time.Second, false, true, true)
	}
	step(5*maxDistrust, true, false, true)
	step(takeOverTime, true, false, false)
	step(minDistrust, false, true, true)
}
