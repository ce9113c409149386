package acceptance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestJobDueSoonStartsOnTimeOnAnyShard: nothing waits for a poll. Jobs
// are created on one node, their shards are held by another, and the only worker
// is connected to a third.
func TestJobDueSoonStartsOnTimeOnAnyShard(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	c.pulse.pingServers(server.Client())
	a, b, d := c.startNode("a"), c.startNode("b"), c.startNode("c")
	c.awaitSettled()
	c.startWorker("w1", 10, d.grpc)
	warm := "warm"
	a.createJob(warm, scheduledJob(onceAt(time.Now())))
	c.awaitEvent(patience, "the worker works", isStartOf(warm, ""))

	const samples = 30
	ids := heldBy(b, "b", "due", samples)
	due := map[string]time.Time{}
	for _, id := range ids {
		due[id] = time.Now().Add(200 * time.Millisecond).Truncate(time.Millisecond)
		a.createJob(id, scheduledJob(onceAt(due[id])))
		c.awaitEvent(patience, id+" starts", isStartOf(id, ""))
	}
	var lags []time.Duration
	for id, at := range due {
		started := c.matchingEvents(isStartOf(id, ""))
		lags = append(lags, time.Unix(0, started[0].AtNS).Sub(at))
	}
	slices.Sort(lags)
	t.Logf("lags: min %v median %v max %v", lags[0], lags[samples/2], lags[samples-1])
	if lags[0] < 0 {
		t.Errorf("a job started %v before it was due", -lags[0])
	}
	// What polls does so once a second: half a second would be its median.
	if median := lags[samples/2]; median > 250*time.Millisecond {
		t.Errorf("median start is %v after due, want at most 250ms", median)
	}
	promises := []historycheck.ExpectedSchedule{{Job: warm}}
	for _, id := range ids {
		promises = append(promises, historycheck.ExpectedSchedule{Job: id})
	}
	c.judgeHistory(historycheck.History{ExpectedSchedules: promises, Bounds: calmBounds()})
}

// scheduledJob is a job that does nothing, at a time.
func scheduledJob(s *fermatav1.Schedule) *fermatav1.Job {
	j := newJob(behaviour{})
	j.Schedule = s
	return j
}

// heldBy finds n ids of jobs whose shards this node holds.
func heldBy(n *schedulerNode, id, prefix string, count int) []string {
	n.t.Helper()
	list, err := n.cluster.ListShards(callContext(n.t), &fermatav1.ListShardsRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	held := map[int]bool{}
	for _, s := range list.GetShards() {
		held[int(s.GetShard())] = s.GetHolder() == id
	}
	var ids []string
	for i := 0; len(ids) < count; i++ {
		if i == 100_000 {
			n.t.Fatalf("%s holds no shards: %v", id, list)
		}
		if job := fmt.Sprintf("%s-%d", prefix, i); held[sharding.ShardOf("default", job, shards)] {
			ids = append(ids, job)
		}
	}
	return ids
}
