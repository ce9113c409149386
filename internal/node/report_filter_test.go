package node

import (
	"testing"
	"time"
)

// TestReportsCountWhileOthersHoldShards: a node that has given up its shards although nobody else has one does not trust
// reports for a minute, and longer each time.
func TestReportsCountWhileOthersHoldShards(t *testing.T) {
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
	step(time.Second, false, false, false) // it holds all
	step(time.Second, false, true, true)
	step(time.Second, true, true, true)
	for _, distrust := range []time.Duration{1, 2, 4, 8, 16, 16} {
		step(time.Second, true, false, false) // all have given up theirs
		step(distrust*time.Minute-time.Second, false, true, false)
		step(time.Second, false, true, true)
	}
	step(5*maxDistrust, true, false, false)
	step(minDistrust, false, true, true)
}
