package acceptance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestWorkersSpreadOverNodes: three workers know one node only. Soon each node has one of them, and runs of all shards
// start without permits. Then the node that they had come from is killed. No run is lost, and none starts twice.
func TestWorkersSpreadOverNodes(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--lease-ttl", longLease.String())
	c.pulse.pingServers(server.Client())
	a, b := c.startNode("a"), c.startNode("b")
	c.startNode("c")
	c.awaitSettled()
	c.awaitEvenShards()
	for i := range 3 {
		c.startWorker(fmt.Sprintf("w%d", i), 20, a.grpc)
	}
	l, shardOf := everyShard(shards, 1)
	l.promiseEvery(time.Second)
	a.registerLoad(l)
	c.waitAllRan(l, patience)

	redistest.Eventually(t, patience, "each node has a worker", func() error { return wantWorkersAt(a, "a", "b", "c") })
	c.waitEnds(time.Now().Add(2 * time.Second)) // with permits that were under way
	before := c.countPermits()
	atLeast(t, "permits while one node had all workers", int(before), shards)
	from := time.Now()
	c.waitEnds(from.Add(3 * time.Second))
	starts := c.matchingEvents(func(e historycheck.Event) bool {
		return e.Kind == historycheck.Start && e.AtNS > from.UnixNano()
	})
	atLeast(t, "starts at workers of all nodes", len(starts), 2*shards)
	if sent := c.countPermits() - before; sent*20 > float64(len(starts)) { // some, if the machine stands still
		t.Errorf("%v permits for %d runs, though each node has a worker", sent, len(starts))
	}

	killed := beginFault("node a killed")
	killed.Harmless = true // its worker goes on elsewhere
	waits := c.takeOverOf(a, shardOf)
	t.Logf("first starts in the shards of a after %v", sortedDurations(waits))
	// A run may have been leased and not delivered.
	fault := killed.endFault(longLease + takeOver)
	redistest.Eventually(t, patience, "the worker of a is elsewhere", func() error { return wantWorkersAt(b, "b", "c") })
	c.waitEnds(time.Now().Add(2 * time.Second))
	r := c.judgeHistory(historycheck.History{
		ExpectedSchedules: l.promises, Faults: []historycheck.Fault{fault}, Bounds: longBounds(),
		Stored: storedJobs(b.listAllJobs()),
	})
	atLeast(t, "nominal times", r.Targets, 10*shards)
}

// promiseEvery expects all jobs of a load every d.
func (l *load) promiseEvery(d time.Duration) {
	for id, j := range l.jobs {
		start := j.GetSchedule().GetStartTime().AsTime().UnixMilli()
		l.promises = append(l.promises, historycheck.ExpectedSchedule{Job: id, AnchorMS: start, Every: d, FromMS: start})
	}
}

// wantWorkersAt checks that three workers are connected, each once, to these nodes, and at least one to each.
func wantWorkersAt(n *schedulerNode, nodes ...string) error {
	list, err := n.cluster.ListWorkers(callContext(n.t), &fermatav1.ListWorkersRequest{})
	if err != nil {
		return err
	}
	var workers, at []string
	for _, w := range list.GetWorkers() {
		workers, at = append(workers, w.GetWorkerId()), append(at, w.GetNode())
	}
	slices.Sort(workers)
	slices.Sort(at)
	if !slices.Equal(workers, []string{"w0", "w1", "w2"}) || !slices.Equal(slices.Compact(slices.Clone(at)), nodes) {
		return fmt.Errorf("workers %v are at nodes %v", workers, at)
	}
	return nil
}

// countPermits is how many permits all nodes have sent.
func (c *cluster) countPermits() (sent float64) {
	c.t.Helper()
	for _, n := range c.nodes {
		sent += n.readMetric(c.t, "fermata_permits_sent_total")
	}
	return sent
}
