package acceptance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestClusterSurvivesCrashAndFreeze: many jobs run on schedule wherever
// their shard and their worker are, through a crash of one node and a freeze of
// another for longer than its locks live.
func TestClusterSurvivesCrashAndFreeze(t *testing.T) {
	runBesideOne(t)
	server := newRedis(t)
	c := newRacedCluster(t, server.URL())
	c.pulse.pingServers(server.Client())
	surviveCrashAndFreeze(t, c, scaleJobs(300))
}

// TestRedisClusterSurvivesCrashAndFreeze is the same on a Redis Cluster, with fewer jobs: some in each shard.
func TestRedisClusterSurvivesCrashAndFreeze(t *testing.T) {
	runBesideOne(t)
	redis := redistest.StartCluster(t, 3, 0, redistest.WithAOF("no"))
	c := newRacedCluster(t, "redis+cluster://"+strings.Join(redis.Addrs(), ","))
	c.pulse.pingServers(redis.Master(0).Client(), redis.Master(1).Client(), redis.Master(2).Client())
	surviveCrashAndFreeze(t, c, scaleJobs(200))
}

// surviveCrashAndFreeze runs n jobs, and some long ones, on three nodes and two workers that
// know one node each; then crashes the node without a worker and freezes one
// that has one.
func surviveCrashAndFreeze(t *testing.T, c *cluster, n int) {
	t.Helper()
	a, b, third := c.startNode("a"), c.startNode("b"), c.startNode("c")
	c.awaitSettled()
	queues := []string{"red", "green", "blue"}
	c.startWorkerOf("w1", 60, queues, a.grpc)
	ofFrozen := c.startWorkerOf("w2", 60, queues, b.grpc)

	first := time.Now().Add(2 * time.Second)
	l := newLoad(n, first, queues...)
	for i := range 30 { // so that the frozen node's worker has something to lose
		id := fmt.Sprintf("long-%02d", i)
		start := first.Add(time.Duration(i) * 100 * time.Millisecond).Truncate(time.Millisecond)
		j := newJob(behaviour{Sleep: 1500 * time.Millisecond})
		j.Queue, j.Schedule = queues[i%3], everyInterval(3*time.Second, start)
		l.jobs[id] = j
		l.promises = append(l.promises, historycheck.ExpectedSchedule{Job: id, AnchorMS: start.UnixMilli(), Every: 3 * time.Second, FromMS: start.UnixMilli()})
	}
	var backoffs []historycheck.Backoff
	for i := range 12 { // whose failures must be kept
		id := fmt.Sprintf("failing-%02d", i)
		l.jobs[id] = newJob(behaviour{Fail: true})
		l.jobs[id].Queue, l.jobs[id].Schedule = queues[i%3], everyInterval(time.Second, first)
		l.promises = append(l.promises, historycheck.ExpectedSchedule{Job: id})
		backoffs = append(backoffs, historycheck.Backoff{Job: id, Every: time.Second, Jitter: 0.1})
	}
	third.registerLoad(l)
	calmFrom := first
	c.waitAllRan(l, patience)
	c.waitEnds(calmFrom.Add(8 * time.Second))
	calmUntil := time.Now()
	silences := a.silenceJobs(l, "load-0003", "load-0008", "load-0013")

	bounds := calmBounds()
	// Late by no more than the documented times, all in all, and a second for a busy
	// machine where that is less than a lock's life.
	hold := takeOver - bounds.Lag
	crash := beginFault("node c killed")
	crash.Harmless = true // it had no worker
	c.killNode(third)
	faults := []historycheck.Fault{crash.endFault(takeOverPromise + time.Second - bounds.Lag)}
	c.waitEnds(time.Now().Add(takeOver + 2*time.Second))
	c.awaitSettled()
	c.awaitLostNodes("c")

	freeze := beginFault("node b frozen", "w2")
	b.freezeProcess()
	c.waitEnds(time.Now().Add(2*lockTTL + time.Second))
	b.thawProcess()
	faults = append(faults, freeze.endFault(hold))
	c.waitEnds(time.Now().Add(takeOver + 2*time.Second))
	c.awaitSettled()
	back := time.Now()
	c.waitEnds(back.Add(4 * time.Second))

	jobs := a.listAllJobs()
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: l.promises, NoRunPeriods: silences, Backoffs: backoffs, Faults: faults, Bounds: bounds, Stored: storedJobs(jobs)})
	calm := lagsBetween(c.pulse.lagsWithoutStalls(r.Lags), calmFrom.UnixNano(), calmUntil.UnixNano())
	t.Logf("calm: %d runs, lag p50 %v p99 %v", len(calm), quantileOfSorted(calm, 0.5), quantileOfSorted(calm, 0.99))
	if p50 := quantileOfSorted(calm, 0.5); p50 > time.Second {
		t.Errorf("in calm times the median of lag is %v", p50)
	}
	atLeast(t, "nominal times", r.Targets, n*6)
	atLeast(t, "waits of failing jobs", r.Waits, 24)
	atLeast(t, "moves of the frozen node's worker to another one", ofFrozen.countLogged("node does not acknowledge heartbeats"), 1)
	var failures int64
	for id, j := range jobs {
		if strings.HasPrefix(id, "failing-") {
			continue
		}
		failures += j.GetStatus().GetConsecutiveFailures() + j.GetStatus().GetDeadTotal()
	}
	if failures != 0 {
		t.Errorf("%d failures are stored of handlers that never failed", failures)
	}
	for _, w := range []string{"w1", "w2"} {
		for phase, from := range map[string]time.Time{"before": calmFrom, "after": back} {
			some := c.matchingEvents(func(e historycheck.Event) bool {
				return e.Kind == historycheck.Start && e.Worker == w && e.AtNS > from.UnixNano() && e.AtNS < from.Add(5*time.Second).UnixNano()
			})
			atLeast(t, "executions of "+w+" "+phase, len(some), 10)
		}
	}
}

// silenceJobs pauses jobs of the load for good, and deletes the last one, and ends what
// was promised of them.
func (n *schedulerNode) silenceJobs(l *load, ids ...string) []historycheck.NoRunPeriod {
	n.t.Helper()
	var all []historycheck.NoRunPeriod
	for i, id := range ids {
		asked := time.Now()
		callUntilAnswered(n.t, "silence "+id, func(ctx context.Context) (_ any, err error) {
			if i == len(ids)-1 {
				return n.jobs.DeleteJob(ctx, &fermatav1.DeleteJobRequest{Name: jobName(id), AllowMissing: true})
			}
			return n.jobs.PauseJob(ctx, &fermatav1.PauseJobRequest{Name: jobName(id)})
		})
		all = append(all, historycheck.NoRunPeriod{Job: id, FromNS: time.Now().UnixNano(), Deleted: i == len(ids)-1})
		for p := range l.promises {
			if l.promises[p].Job == id {
				l.promises[p].UntilMS = asked.UnixMilli()
			}
		}
	}
	return all
}

// waitAllRan waits until every job of the load has ended once.
func (c *cluster) waitAllRan(l *load, limit time.Duration) {
	c.t.Helper()
	redistest.Eventually(c.t, limit, "every job has run", func() error {
		ran := map[string]bool{}
		for _, e := range c.matchingEvents(isEnd) {
			ran[e.Job] = true
		}
		if len(ran) < len(l.jobs) {
			return fmt.Errorf("%d of %d have", len(ran), len(l.jobs))
		}
		return nil
	})
}

// waitEnds waits until a handler has ended after an instant: time passes by what
// is done in it.
func (c *cluster) waitEnds(after time.Time) {
	c.t.Helper()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for time.Now().Before(after) {
		<-poll.C
	}
	redistest.Eventually(c.t, patience, "work goes on", func() error {
		if len(c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.End && e.AtNS > after.UnixNano() })) == 0 {
			return errors.New("nothing has ended since")
		}
		return nil
	})
}
