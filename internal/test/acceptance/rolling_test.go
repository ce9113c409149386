package acceptance

import (
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// TestRollingRestartIsNotNoticed restarts all nodes one after the other, with
// new addresses, under load: nothing fails, nothing is lost or repeated, and
// nobody waits for the end of a lock.
func TestRollingRestartIsNotNoticed(t *testing.T) {
	runBesideOne(t)
	server := newRedis(t)
	c := newRacedCluster(t, server.URL())
	c.pulse.ask(server.Client())
	for _, id := range []string{"a", "b", "c"} {
		c.start(id)
	}
	c.settle()
	c.startWorker("w1", 40, c.nodes[0].grpc, c.nodes[1].grpc)
	c.startWorker("w2", 40, c.nodes[1].grpc, c.nodes[2].grpc)
	first := time.Now().Add(time.Second)
	size := sized(400)
	l := newLoad(size, first, "default")
	for _, id := range []string{"load-0001", "load-0011", "load-0021", "load-0031"} {
		// Runs that are live while their node leaves.
		l.jobs[id].Payload = behaviour{Sleep: 1200 * time.Millisecond}.payload()
	}
	c.nodes[0].register(l)
	c.waitAllRan(l, patience)
	c.waitEnds(first.Add(6 * time.Second))
	calmUntil := time.Now()

	for _, old := range slices.Clone(c.nodes) {
		c.retire(old)
		c.start(old.id)
		c.settle()
	}
	c.waitEnds(time.Now().Add(2 * time.Second))
	end := time.Now()

	jobs := c.nodes[0].all()
	bounds := calmBounds()
	bounds.Lag = 1500 * time.Millisecond
	r := c.judge(historycheck.History{Promises: l.promises, Bounds: bounds, Stored: stored(jobs)})
	lags := c.pulse.undisturbed(r.Lags)
	before := between(lags, first.UnixNano(), calmUntil.UnixNano())
	during := between(lags, calmUntil.UnixNano(), end.UnixNano())
	t.Logf("lag before: p50 %v p99 %v max %v; during: p50 %v p99 %v max %v", quantile(before, 0.5), quantile(before, 0.99),
		quantile(before, 1), quantile(during, 0.5), quantile(during, 0.99), quantile(during, 1))
	// Without a hand-over, what is due in the shards of a node that leaves would wait for the
	// end of its locks. What a busy machine adds to a run here and there is not the restart's.
	if added := quantile(during, 0.99) - quantile(before, 0.5); added >= lockTTL {
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
