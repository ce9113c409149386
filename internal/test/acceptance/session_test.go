package acceptance

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestCrashedWorkersRunsRestartInTime: with default settings a run whose worker is
// killed starts elsewhere within 10 s, and so does one that holds a lock: its unit is free as
// soon as its lease has ended.
func TestCrashedWorkersRunsRestartInTime(t *testing.T) {
	runBesideOthers(t)
	const promised = 10 * time.Second
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--lease-ttl", "30s")
	n, other := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	jobs := []string{"plain", "locked"}
	for _, id := range jobs {
		j := newJob(behaviour{Sleep: time.Hour})
		j.Schedule = onceAt(time.Now())
		if id == "locked" {
			j.Locks = []*fermatav1.Lock{{Key: "ledger"}}
		}
		n.createJob(id, j)
	}
	w := c.startWorker("w1", 4, n.grpc)
	for _, id := range jobs {
		c.awaitEvent(patience, id+" starts", isStartOf(id, "w1"))
	}
	c.startWorker("w2", 4, other.grpc)
	killed := time.Now()
	w.killProcess()
	for _, id := range jobs {
		again := c.awaitEvent(patience, id+" starts elsewhere", isStartOf(id, "w2"))
		took := time.Unix(0, again.AtNS).Sub(killed)
		t.Logf("%s starts elsewhere after %v", id, took)
		if took > promised+c.pulse.Since(killed)+busyAllowance() {
			t.Errorf("%s starts elsewhere after %v, %v is promised", id, took, promised)
		}
	}
}

// TestFrozenWorkerStartsNoExpiredLease: what lay in the socket of a worker that stood
// still for longer than its session does not begin when it wakes up, least of all beside the
// next holder of a lock.
func TestFrozenWorkerStartsNoExpiredLease(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	n := c.startNode("a")
	c.awaitSettled()
	w := c.startWorker("w1", 40, n.grpc)
	n.createJob("first", scheduledJob(onceAt(time.Now())))
	c.awaitEvent(patience, "the worker works", isStartOf("first", "w1"))
	const jobs = 30
	at := time.Now().Add(time.Second)
	promises := []historycheck.ExpectedSchedule{{Job: "first"}, {Job: "last"}}
	var locked []string
	for i := range jobs {
		j := newJob(behaviour{Sleep: 20 * time.Millisecond})
		j.Schedule = onceAt(at.Add(time.Duration(i) * 10 * time.Millisecond))
		id := fmt.Sprintf("frozen-%02d", i)
		if i%3 == 0 {
			j.Locks = []*fermatav1.Lock{{Key: "ledger"}}
			locked = append(locked, id)
		}
		n.createJob(id, j)
		promises = append(promises, historycheck.ExpectedSchedule{Job: id})
	}
	delivered := n.readMetric(t, "fermata_dispatch_leases_delivered_total")
	frozen := beginFault("worker frozen", "w1")
	w.freezeProcess()
	redistest.Eventually(t, patience, "leases lie in the socket", func() error {
		if more := n.readMetric(t, "fermata_dispatch_leases_delivered_total") - delivered; more < 3 {
			return fmt.Errorf("%v", more)
		}
		return nil
	})
	c.startWorker("w2", 4, n.grpc)
	<-time.After(2 * leaseTTL) // the fault lasts
	thawed := time.Now()
	w.thawProcess()
	n.createJob("last", scheduledJob(onceAt(time.Now().Add(time.Second))))
	c.awaitEvent(patience, "the worker may work again, or the other one does", isStartOf("last", ""))
	redistest.Eventually(t, patience, "all have run", func() error {
		if ended := len(c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.End && e.Outcome == historycheck.OK })); ended < jobs+2 {
			return fmt.Errorf("%d runs", ended)
		}
		return nil
	})
	for _, e := range c.matchingEvents(func(e historycheck.Event) bool {
		return e.Worker == "w1" && e.Kind == historycheck.Start && e.AtNS > thawed.UnixNano()
	}) {
		if leased := time.UnixMicro(e.Token); leased.Before(thawed.Add(-time.Millisecond)) {
			t.Errorf("%s began %v after it was leased, when the worker woke up", e.Job, time.Unix(0, e.AtNS).Sub(leased))
		}
	}
	c.judgeHistory(historycheck.History{
		ExpectedSchedules: promises, Shared: []historycheck.Shared{{Lock: "ledger", Jobs: locked, Limit: 1}},
		Bounds: calmBounds(), Faults: []historycheck.Fault{frozen.endFault(sessionTTL(leaseTTL))},
	})
}
