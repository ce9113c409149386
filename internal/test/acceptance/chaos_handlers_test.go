package acceptance

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestChaosHandlers: what handlers do to their workers and to the cluster.
func TestChaosHandlers(t *testing.T) {
	skipInShortForm(t, "T06", "T07", "T10")
	runBesideOne(t)
	// A load that its workers can bear although each message takes seconds.
	runTrials(t, bedOptions{Jobs: 1000},
		trial{ID: "T07", Name: "handlers of about a lease's life, on slow links", Bound: slowBound, Inject: borderHandlers, LongOnly: true},
	)
	runTrials(t, bedOptions{Queues: []string{"poison"}},
		trial{ID: "T06", Name: "handlers hang while their leases are renewed", Bound: calmBound, Inject: hangHandlers, LongOnly: true},
		trial{ID: "T10", Name: "payloads kill their workers", Bound: poisonBound, Inject: poisonWorkers, LongOnly: true},
	)
}

// hangHandlers starts attempts that never end: half of the handlers heed their
// context, half do not. Each is settled in time, and the slots of those that obey
// are free.
func hangHandlers(b *bed) {
	const hanging, timeout, grace = 10, 2 * time.Second, time.Second
	b.startWorkerOf("hang", 2*hanging, []string{"hang"}, b.nodes[0].grpc)
	at := time.Now().Add(time.Second)
	b.injectFault(faultKind{Name: "handler hangs", Harmless: true}, func() {
		for i := range 2 * hanging {
			id := fmt.Sprintf("hang-%02d", i)
			j := newJob(behaviour{Sleep: time.Hour, Stubborn: i%2 == 0})
			if i%2 == 0 {
				j = newJob(behaviour{Sleep: 2 * (timeout + grace), Stubborn: true})
			}
			j.Queue, j.Schedule = "hang", onceAt(at)
			j.Timeout, j.TimeoutGrace = durationpb.New(timeout), durationpb.New(grace)
			j.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: 1}
			b.createTrialJob(historycheck.ExpectedSchedule{Job: id}, j)
		}
		for i := range 2 * hanging {
			id := fmt.Sprintf("hang-%02d", i)
			started := b.awaitEvent(patience, "it starts", isStartOf(id, ""))
			redistest.Eventually(b.t, patience, "it is timed out", func() error {
				return wantStatus(b.nodeByID("b").getJob(id), func(s *fermatav1.JobStatus) bool {
					return s.GetTimeoutTotal() == 1 && s.GetConcurrentRuns() == 0 && s.GetLostTotal() == 0
				})
			})
			run := b.nodeByID("b").listRuns(id)[0]
			at := time.Unix(0, started.AtNS)
			took, stalls := run.GetFinishTime().AsTime().Sub(at), b.pulse.Since(at.Add(-time.Second))
			if limit := timeout + grace + time.Second + stalls + busyAllowance(); took > limit ||
				took < timeout-100*time.Millisecond-stalls {
				b.t.Errorf("%s: timed out after %v, want %v to %v; the machine stood still for %v", id, took, timeout, limit,
					stalls)
			}
		}
		b.current.Faults["handler hangs"] += 2*hanging - 1
	})
	for i := range hanging { // in the slots of those that obeyed, at least
		id := fmt.Sprintf("hang-after-%02d", i)
		j := newJob(behaviour{})
		j.Queue, j.Schedule = "hang", onceAt(time.Now())
		b.createTrialJob(historycheck.ExpectedSchedule{Job: id}, j)
		b.awaitEvent(patience, "a slot is free", isStartOf(id, "hang"))
	}
	told := b.matchingEvents(func(e historycheck.Event) bool { return e.Worker == "hang" && e.Kind == historycheck.ContextCancelled })
	b.requireEffect("handlers that were told", len(told), hanging)
}

func slowBound(lock, lease time.Duration) time.Duration { return calmBound(lock, lease) + lease/2 }

// borderHandlers runs handlers of 0.8 to 1.2 lives of a lease while messages take up to a
// quarter of a session there and back: a lease that is renewed does not end. They have workers of their own,
// with a slot for each, so that other work does not wait for them.
func borderHandlers(b *bed) {
	lock, lease := chaosTTLs()
	n := scaleJobs(60)
	if chaosLong() {
		n = 1000
	}
	for i, node := range b.nodes {
		b.startWorkerOf(fmt.Sprint("border-", node.id), n/len(b.nodes)+1, []string{"border"}, b.nodes[i].grpc)
	}
	ended := b.sumMetric("fermata_leases_expired_total")
	delayed := func() (n int64) {
		for _, l := range b.links {
			n += l.grpc.Counters().Delayed
		}
		return n
	}
	before := delayed()
	b.injectFault(faultKind{Name: "slow links of workers", Within: slowBound(lock, lease), Harmless: true}, func() {
		at := time.Now().Add(time.Second)
		for i := range n {
			id := fmt.Sprintf("border-%04d", i)
			j := newJob(behaviour{Sleep: lease*8/10 + time.Duration(fractionalPart(float64(i)*0.6180339887)*0.4*float64(lease))})
			j.Queue, j.Schedule = "border", onceAt(at.Add(time.Duration(i)*time.Second/time.Duration(n)))
			b.createTrialJob(historycheck.ExpectedSchedule{Job: id}, j)
		}
		for _, l := range b.links {
			l.grpc.LatencyBetween(0, sessionTTL(lease)/8)
		}
		redistest.Eventually(b.t, 4*lease+30*time.Second, "all handlers end", func() error {
			done := b.matchingEvents(func(e historycheck.Event) bool {
				return e.Kind == historycheck.End && e.Outcome == historycheck.OK && len(e.Job) > 7 && e.Job[:7] == "border-"
			})
			if len(done) < n {
				return fmt.Errorf("%d of %d have", len(done), n)
			}
			return nil
		})
	})
	b.requireEffect("messages delayed", int(delayed()-before), min(n, 200))
	if lost := b.sumMetric("fermata_leases_expired_total") - ended; lost > 0 {
		b.t.Errorf("%v leases ended though they were renewed", lost)
	}
}

// poisonBound: what ran beside a poisonous payload is lost with it, as often as it
// meets one.
func poisonBound(_, lease time.Duration) time.Duration { return 3 * (lease + 2*time.Second) }

// poisonWorkers runs jobs that kill whoever takes them: two when their handler has
// begun for good, which three times in a row quarantines them; one so early that
// its start is not acknowledged, which takes six times. So may it any of them that
// shares a worker with that one. Other work goes on, though what runs beside them each time
// is given up with them.
func poisonWorkers(b *bed) {
	lock, lease := chaosTTLs()
	const least, most = 3, 6 // losses
	poison := []string{"poison-0", "poison-1", "poison-early"}
	b.deadly = true
	deaths := 0
	b.injectFault(faultKind{Name: "worker killed by its payload", Within: workerBound(lock, lease)}, func() {
		for _, id := range poison {
			j := newJob(behaviour{Poison: true, Sleep: 300 * time.Millisecond})
			if id == "poison-early" {
				j = newJob(behaviour{Poison: true})
			}
			j.Queue, j.Schedule = "poison", onceAt(time.Now())
			b.createTrialJob(historycheck.ExpectedSchedule{Job: id}, j)
		}
		redistest.Eventually(b.t, 8*workerBound(lock, lease)+30*time.Second, "all have been given up", func() error {
			for _, id := range b.workerNames() {
				if b.workers[id].hasExited() {
					deaths++
					delete(b.workers, id)
					b.addWorker()
				}
			}
			for _, id := range poison {
				if err := wantStatus(b.nodeByID("a").getJob(id), func(s *fermatav1.JobStatus) bool {
					return s.GetState() == fermatav1.JobStatus_STATE_DEAD && s.GetLostTotal() >= least && s.GetLostTotal() <= most
				}); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return nil
		})
	})
	b.requireEffect("workers killed", deaths, 3)
	if deaths > 12 {
		b.t.Errorf("%d workers died, want at most 12", deaths)
	}
	for _, id := range poison {
		runs := b.nodeByID("a").listRuns(id)
		if len(runs) != 1 || runs[0].GetOutcome() != fermatav1.Outcome_OUTCOME_QUARANTINED && id != "poison-early" {
			b.t.Errorf("%s has %v, want one run that was quarantined", id, runs)
		}
	}
}
