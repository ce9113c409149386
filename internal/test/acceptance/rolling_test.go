package acceptance

import (
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// TestRollingRestartLosesNothing restarts all nodes one after the other, with
// new addresses, under load: nothing fails, nothing is lost or repeated, and
// no job waits for the end of a lock.
func TestRollingRestartLosesNothing(t *testing.T) {
	runBesideOne(t)
	server := newRedis(t)
	c := newRacedCluster(t, server.URL())
	c.pulse.pingServers(server.Client())
	for _, id := range []string{"a", "b", "c"} {
		c.startNode(id)
	}
	c.awaitSettled()
	c.startWorker("w1", 40, c.nodes[0].grpc, c.nodes[1].grpc)
	c.startWorker("w2", 40, c.nodes[1].grpc, c.nodes[2].grpc)
	first := time.Now().Add(time.Second)
	size := scaleJobs(400)
	l := newLoad(size, first, "default")
	for _, id := range []string{"load-0001", "load-0011", "load-0021", "load-0031"} {
		// Runs that are live while their node leaves.
		l.jobs[id].Payload = behaviour{Sleep: 1200 * time.Millisecond}.encodePayload()
	}
	c.nodes[0].registerLoad(l)
	c.waitAllRan(l, patience)
	c.waitEnds(first.Add(6 * time.Second))
	calmUntil := time.Now()

	for i, old := range slices.Clone(c.nodes) {
		c.stopNode(old)
		if i == 0 {
			c.awaitSettled()
			c.awaitLostNodes() // a node that leaves is not lost
		}
		c.startNode(old.id)
		c.awaitSettled()
	}
	c.waitEnds(time.Now().Add(2 * time.Second))
	end := time.Now()

	jobs := c.nodes[0].listAllJobs()
	bounds := calmBounds()
	bounds.Lag = 1500 * time.Millisecond
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: l.promises, Bounds: bounds, Stored: storedJobs(jobs)})
	lags := c.pulse.lagsWithoutStalls(r.Lags)
	before := lagsBetween(lags, first.UnixNano(), calmUntil.UnixNano())
	during := lagsBetween(lags, calmUntil.UnixNano(), end.UnixNano())
	t.Logf("lag before: p50 %v p99 %v max %v; during: p50 %v p99 %v max %v", quantileOfSorted(before, 0.5), quantileOfSorted(before, 0.99),
		quantileOfSorted(before, 1), quantileOfSorted(during, 0.5), quantileOfSorted(during, 0.99), quantileOfSorted(during, 1))
	// Without a hand-over, what is due in the shards of a node that leaves would wait for the
	// end of its locks. What a busy machine adds to a run here and there is not the restart's.
	if added := quantileOfSorted(during, 0.99) - quantileOfSorted(before, 0.5); added >= lockTTL {
		t.Errorf("the restart added %v of lag, want less than the life of a lock", added)
	}
	if r.Repeats != 0 {
		t.Errorf("%d executions were repeated", r.Repeats)
	}
	atLeast(t, "runs during the restart", len(during), size/2)
	for id, j := range jobs {
		if s := j.GetStatus(); s.GetLostTotal() != 0 || s.GetDeadTotal() != 0 || s.GetConsecutiveFailures() != 0 || s.GetTimeoutTotal() != 0 {
			t.Errorf("%s: %v", id, s)
		}
	}
}
