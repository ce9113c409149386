package acceptance

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestLostRedisRepliesCountOnce: a proxy between the nodes and Redis
// drops replies, after the scripts have run, while jobs succeed, fail and are
// created. Every counter comes out exact.
func TestLostRedisRepliesCountOnce(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	proxy := faultproxy.New(t, server.Addr())
	c := newCluster(t, "redis://"+proxy.Addr()+"/0")
	c.pulse.pingServers(server.Client())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorker("w1", 40, a.grpc)
	c.startWorker("w2", 40, b.grpc)
	first := time.Now().Add(time.Second)
	l := newLoad(60, first, "default")
	for i := range l.promises {
		p := &l.promises[i]
		j := l.jobs[p.Job]
		start := first.Add(time.Duration(i) * 16 * time.Millisecond).Truncate(time.Millisecond)
		j.Schedule, j.BackoffPolicy = everyInterval(time.Second, start), noBackoff()
		j.Payload = behaviour{Sleep: 10 * time.Millisecond, Fail: i%2 == 0}.encodePayload()
		*p = historycheck.ExpectedSchedule{Job: p.Job, AnchorMS: start.UnixMilli(), Every: time.Second, FromMS: start.UnixMilli()}
	}
	a.registerLoad(l)
	c.waitAllRan(l, patience)

	creators := startCreators(t, a, b)
	lost := beginFault("replies of redis lost")
	for _, probability := range []float64{0.03, 0.2} {
		proxy.CutReplies(probability)
		cut := proxy.Counters().Cut
		c.waitEnds(time.Now().Add(6 * time.Second))
		atLeast(t, fmt.Sprintf("replies cut at %v", probability), int(proxy.Counters().Cut-cut), 20)
	}
	proxy.Pass()
	creators.stopCreating()
	fault := lost.endFault(leaseTTL + 2*time.Second)
	// What was in doubt when the fault ended is settled one lease later.
	calm := time.Now().Add(leaseTTL + 2*time.Second)
	redistest.Eventually(t, patience, "every job has run after the fault", func() error {
		ran := map[string]bool{}
		for _, e := range c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.End && e.AtNS > calm.UnixNano() }) {
			ran[e.Job] = true
		}
		if want := len(l.jobs) + creators.countCreated(); len(ran) < want {
			return fmt.Errorf("%d of %d have", len(ran), want)
		}
		return nil
	})
	until := time.Now().Add(-2 * time.Second).UnixMilli()
	jobs := a.pauseAllJobs()
	promises := append(l.promises, creators.promises...)
	for i := range promises {
		promises[i].UntilMS = until
	}
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: promises, Faults: []historycheck.Fault{fault}, Bounds: calmBounds(), Stored: storedJobs(jobs)})
	atLeast(t, "nominal times", r.Targets, 300)
	c.countersMatch(jobs, false)
	if len(jobs) != len(promises) {
		t.Errorf("%d jobs are stored, %d were acknowledged", len(jobs), len(promises))
	}
}
