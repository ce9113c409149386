package node

import (
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

var someDemand = []job.QueueDemand{{Namespace: "ns", Queue: "q"}}

// A node without workers gets one after a while, unless it has got one meanwhile, or its link is down. While it stays
// without, others are asked ever more rarely.
func TestNodesWithoutWorkersAreGivenOneRarely(t *testing.T) {
	var w workerSpread
	begin := time.Unix(1_700_000_000, 0)
	asked := func(from, till time.Duration) (at []time.Duration) {
		for d := from; d < till; d += time.Second {
			if w.targets(begin.Add(d)) != nil {
				w.noteAsked(begin.Add(d))
				at = append(at, d)
			}
		}
		return at
	}
	w.setDemand("b", nil, begin)
	w.setDemand("c", someDemand, begin)
	w.setDemand("d", nil, begin)
	w.removePeer("d")
	w.setDemand("b", nil, begin.Add(10*time.Second)) // it states its demand every second
	at := asked(0, time.Hour)
	if len(at) < 8 || len(at) > 14 || at[0] < spreadAfter || at[0] > 2*spreadAfter+time.Second {
		t.Fatalf("workers are asked after %v", at)
	}
	for i := 1; i < len(at); i++ {
		if pause := at[i] - at[i-1]; pause < minSpreadPause || pause > maxSpreadPause+time.Second ||
			i > 1 && pause < at[i-1]-at[i-2] {
			t.Errorf("workers are asked after %v", at)
		}
	}
	if peers := w.targets(begin.Add(2 * time.Hour)); !slices.Equal(peers, []string{"b"}) {
		t.Errorf("the nodes without workers are %v", peers)
	}
	w.setDemand("b", someDemand, begin.Add(2*time.Hour))
	if at := asked(2*time.Hour, 3*time.Hour); len(at) > 0 {
		t.Errorf("all nodes have workers, and some are asked to move after %v", at)
	}
	w.setDemand("c", nil, begin.Add(3*time.Hour))
	at = asked(3*time.Hour, 3*time.Hour+40*time.Second)
	if len(at) < 1 || at[0] < 3*time.Hour+spreadAfter {
		t.Errorf("a worker is asked after %v", at)
	}
}
