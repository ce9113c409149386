package acceptance

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestChaosWorkers: what happens to workers and to their links.
func TestChaosWorkers(t *testing.T) {
	runBesideOne(t)
	runTrials(t, bedOptions{Raced: true},
		trial{ID: "T04", Name: "a worker freezes for two leases", Bound: workerBound, Inject: freezeWorker},
		trial{ID: "T05", Name: "workers are killed", Bound: apartBound, Inject: killWorkers},
		trial{ID: "T21", Name: "a worker's packets are lost, its streams stay open", Bound: workerBound, Inject: silenceWorker},
		trial{ID: "T23", Name: "streams of workers break, and nodes drain, again and again", Bound: twiceBound, Inject: stormStreams, LongOnly: true},
	)
}

// twiceBound: where losses follow each other faster than leases end, a run may lose
// its worker twice in a row. A node that drains leaves leases as they are.
func twiceBound(lock, lease time.Duration) time.Duration { return 2 * leaseBound(lock, lease) }

// apartBound: a run that has lost two workers stands apart before it starts again.
func apartBound(lock, lease time.Duration) time.Duration {
	return max(2*workerBound(lock, lease), workerBound(lock, lease)+standsApart)
}

// openRunsOf are the executions of a worker that have started and not ended, by run.
func (b *bed) openRunsOf(worker string) map[string]historycheck.Event {
	b.t.Helper()
	live := map[string]historycheck.Event{}
	for _, e := range b.readEvents() {
		switch {
		case e.Worker != worker:
		case e.Kind == historycheck.Start:
			live[e.Run] = e
		case e.Kind == historycheck.End:
			delete(live, e.Run)
		}
	}
	return live
}

// awaitOpenRuns waits until a worker runs something long.
func (b *bed) awaitOpenRuns(worker string) {
	b.t.Helper()
	redistest.Eventually(b.t, patience, worker+" runs something", func() error {
		if len(b.openRunsOf(worker)) < 2 {
			return errors.New("it does not")
		}
		return nil
	})
}

// awaitMovedRuns waits until some of these executions have started again elsewhere, and returns
// how many had by then, and how many of them while the old handler still believed
// in its lease.
func (b *bed) awaitMovedRuns(live map[string]historycheck.Event, limit time.Duration) (moved, deceived int) {
	b.t.Helper()
	redistest.Eventually(b.t, limit, "runs move to other workers", func() error {
		told, again := map[int64]int64{}, map[string]historycheck.Event{}
		for _, e := range b.readEvents() {
			old, ours := live[e.Run]
			switch {
			case !ours:
			case e.Token == old.Token && e.Kind != historycheck.Start && told[e.Token] == 0:
				told[e.Token] = e.AtNS
			case e.Token > old.Token && e.Kind == historycheck.Start:
				if first, seen := again[e.Run]; !seen || e.AtNS < first.AtNS {
					again[e.Run] = e
				}
			}
		}
		moved, deceived = len(again), 0
		for run, e := range again {
			if at := told[live[run].Token]; at == 0 || at > e.AtNS {
				deceived++
			}
		}
		if moved == 0 {
			return fmt.Errorf("none of %v has", slices.Collect(maps.Keys(live)))
		}
		return nil
	})
	return moved, deceived
}

// freezeWorker stops a worker. What it has, started or not, moves when its session ends, and
// when it wakes up nothing begins on what it was leased before.
func freezeWorker(b *bed) {
	lock, lease := chaosTTLs()
	id := b.busiestWorker()
	b.awaitOpenRuns(id)
	w := b.workers[id]
	ended := b.sumMetric("fermata_leases_expired_total")
	b.injectFault(faultKind{Name: "worker frozen", Within: workerBound(lock, lease), Workers: []string{id}}, func() {
		moved, _ := b.awaitMovedRuns(b.freezeWithOpenRuns(id), workerBound(lock, lease)+2*busyAllowance())
		b.requireEffect("started runs that moved", moved, 1)
		b.waitFor(2 * lease)
		w.thawProcess()
	})
	b.requireEffect("leases that ended", int(b.sumMetric("fermata_leases_expired_total")-ended), 1)
	back := time.Now().UnixNano()
	b.awaitEvent(patience, "the worker works again", func(e historycheck.Event) bool {
		return e.Worker == id && e.Kind == historycheck.Start && e.AtNS > back
	})
}

// freezeWithOpenRuns freezes a worker while it runs something, and returns what it runs.
func (b *bed) freezeWithOpenRuns(id string) map[string]historycheck.Event {
	b.t.Helper()
	w := b.workers[id]
	for range 10 {
		w.freezeProcess()
		if live := b.openRunsOf(id); len(live) > 0 {
			return live
		}
		w.thawProcess() // its runs ended just before
		b.awaitOpenRuns(id)
	}
	b.t.Fatalf("%s ran nothing whenever it was frozen", id)
	return nil
}

// sumMetric is a metric over all nodes.
func (b *bed) sumMetric(name string, labels ...string) (sum float64) {
	b.t.Helper()
	for _, n := range b.nodes {
		sum += n.readMetric(b.t, name, labels...)
	}
	return sum
}

// killWorkers kills a worker, starts another one, and so on. Losses count as such:
// none of them is a failure.
func killWorkers(b *bed) {
	lock, lease := chaosTTLs()
	kills, lost := 0, 0
	for end := time.Now().Add(chaosSpan(3 * time.Second)); kills < 3 || time.Now().Before(end); kills++ {
		id := b.busiestWorker()
		redistest.Eventually(b.t, patience, id+" runs something", func() error {
			if len(b.openRunsOf(id)) == 0 {
				return errors.New("it does not")
			}
			return nil
		})
		b.injectFault(faultKind{Name: "worker killed", Within: workerBound(lock, lease), Workers: []string{id}}, func() {
			b.killWorker(id)
			lost += len(b.openRunsOf(id))
		})
		b.addWorker()
		b.waitFor(time.Second)
	}
	b.requireEffect("executions lost with their worker", lost, 1)
	b.awaitCalm(workerBound(lock, lease))
	total := int64(0)
	for id, j := range b.nodes[0].listAllJobs() {
		s := j.GetStatus()
		total += s.GetLostTotal()
		if _, fails := b.failingJob(id); !fails && (s.GetTimeoutTotal() != 0 || s.GetDeadTotal()*3 > s.GetLostTotal()) {
			b.t.Errorf("%s never failed and lost %d workers; %d dead and %d timed out runs are stored", id, s.GetLostTotal(), s.GetDeadTotal(), s.GetTimeoutTotal())
		}
	}
	b.requireEffect("losses stored", int(total), 1)
}

// failingJob finds a job among those that fail.
func (b *bed) failingJob(id string) (historycheck.Backoff, bool) {
	i := slices.IndexFunc(b.load.backoffs, func(x historycheck.Backoff) bool { return x.Job == id })
	if i < 0 {
		return historycheck.Backoff{}, false
	}
	return b.load.backoffs[i], true
}

// silenceWorker loses all packets between a worker and all nodes. The handlers are cancelled
// before anybody else may run what they run.
func silenceWorker(b *bed) {
	lock, lease := chaosTTLs()
	id := b.busiestWorker()
	b.awaitOpenRuns(id)
	stalled := func() (n int64) {
		for _, l := range b.links {
			n += l.grpc.Counters().Stalled
		}
		return n
	}
	before := stalled()
	b.injectFault(faultKind{Name: "worker's packets lost", Within: workerBound(lock, lease), Workers: []string{id}}, func() {
		for _, l := range b.links {
			l.grpc.Only(id)
			l.grpc.Blackhole(faultproxy.Both)
		}
		redistest.Eventually(b.t, patience, "packets of the worker are held", func() error {
			if stalled() == before {
				return errors.New("none is")
			}
			return nil
		})
		live := b.openRunsOf(id)
		moved, deceived := b.awaitMovedRuns(live, workerBound(lock, lease)+2*busyAllowance())
		b.requireEffect("runs that moved", moved, 1)
		if deceived > 0 {
			b.t.Errorf("%d of %d runs started elsewhere before their old handler was cancelled", deceived, moved)
		}
		b.waitFor(chaosSpan(4 * time.Second))
		for _, l := range b.links {
			l.grpc.CloseAll()
			l.grpc.Pass()
		}
	})
	b.requireEffect("packets held", int(stalled()-before), 1)
	back := time.Now().UnixNano()
	b.awaitEvent(patience, "the worker works again", func(e historycheck.Event) bool {
		return e.Worker == id && e.Kind == historycheck.Start && e.AtNS > back
	})
}

// stormStreams loses what nodes have sent to workers and breaks all streams, again
// and again, and drains a node now and then, which ends them in good order.
func stormStreams(b *bed) {
	lock, lease := chaosTTLs()
	kind := faultKind{Name: "all streams broken", Within: workerBound(lock, lease)}
	drained := faultKind{Name: "node drained", Within: leaseBound(lock, lease)}
	storms, closed := 0, int64(0)
	for end := time.Now().Add(chaosSpan(4 * time.Second)); storms < 3 || time.Now().Before(end); storms++ {
		b.injectFault(kind, func() {
			for _, l := range b.links {
				l.grpc.Blackhole(faultproxy.ToClient)
			}
			b.waitFor(200 * time.Millisecond)
			for _, l := range b.links {
				l.grpc.CloseAll()
				l.grpc.Pass()
			}
		})
		if storms%3 == 1 {
			n := b.nodes[0]
			b.injectFault(drained, func() {
				b.stopNode(n)
				b.startNode(n.id)
			})
		}
		b.waitFor(700 * time.Millisecond)
	}
	for _, l := range b.links {
		closed += l.grpc.Counters().Closed
	}
	b.requireEffect("streams broken", int(closed), 6)
	for id, w := range b.workers {
		if calm := w.countLogged("ENHANCE_YOUR_CALM") + w.countLogged("too_many_pings"); calm > 0 {
			b.t.Errorf("%s was asked %d times to ping less often", id, calm)
		}
	}
}
