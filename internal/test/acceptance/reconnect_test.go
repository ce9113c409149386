package acceptance

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// longLease leaves a worker some tries to come back: its session, of two thirds of that, has
// more than half of its life left when the stream is cut.
const longLease = 12 * time.Second

func longBounds() historycheck.Bounds {
	b := calmBounds()
	b.LeaseTTL, b.SessionTTL, b.Longest = longLease, sessionTTL(longLease), 2*longLease
	return b
}

// TestRunsSurviveBrokenStream: a worker that comes back inside the lease, to the
// same node or to another, keeps what it runs.
func TestRunsSurviveBrokenStream(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	for _, elsewhere := range []bool{false, true} {
		name := "restored at the same node"
		if elsewhere {
			name = "restored at another node"
		}
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, server.URL(), "--keyspace", fmt.Sprint("cut-", elsewhere), "--lease-ttl", longLease.String())
			n := c.startNode("a")
			proxy := faultproxy.New(t, n.grpc)
			if elsewhere {
				c.startNode("b")
			}
			c.awaitSettled()
			c.startWorker("w1", 4, proxy.Addr())
			// Runs that end while the stream is away, soon after, and after the
			// lease they began with would have ended.
			sleeps := []time.Duration{1200 * time.Millisecond, 2 * time.Second, longLease + time.Second}
			for i, sleep := range sleeps {
				j := newJob(behaviour{Sleep: sleep})
				j.Schedule = onceAt(time.Now())
				n.createJob(fmt.Sprintf("cut-%d", i), j)
			}
			for i := range sleeps {
				c.awaitEvent(patience, "the runs start", isStartOf(fmt.Sprintf("cut-%d", i), "w1"))
			}
			away := beginFault("stream cut")
			away.Harmless = true
			proxy.Refuse(true)
			proxy.CloseAll()
			if !elsewhere {
				// Back again inside the lease, after one run has ended without a stream.
				c.awaitEvent(patience, "a run ends without a stream", func(e historycheck.Event) bool { return e.Kind == historycheck.End })
				proxy.Refuse(false)
			}
			promises := []historycheck.ExpectedSchedule{}
			for i := range sleeps {
				id := fmt.Sprintf("cut-%d", i)
				promises = append(promises, historycheck.ExpectedSchedule{Job: id})
				redistest.Eventually(t, 3*longLease, id+" is done", func() error {
					return wantStatus(n.getJob(id), func(s *fermatav1.JobStatus) bool {
						return s.GetState() == fermatav1.JobStatus_STATE_DONE && s.GetRunsTotal() == 1 && s.GetSucceededTotal() == 1 &&
							s.GetLostTotal() == 0
					})
				})
			}
			if got := proxy.Counters(); got.Closed == 0 || !elsewhere && got.Connections < 2 {
				t.Errorf("the stream was not cut and restored: %+v", got)
			}
			r := c.judgeHistory(historycheck.History{ExpectedSchedules: promises, Bounds: longBounds(), Faults: []historycheck.Fault{away.endFault(0)}})
			if r.Executions != len(sleeps) {
				t.Errorf("%d executions, want %d", r.Executions, len(sleeps))
			}
		})
	}
}

// TestResultsCountOnceOverBrokenStreams cuts the stream of a busy worker again and again,
// after its node has received results and before the worker has received the acks.
func TestResultsCountOnceOverBrokenStreams(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--lease-ttl", longLease.String())
	c.pulse.pingServers(server.Client())
	n := c.startNode("a")
	c.awaitSettled()
	proxy := faultproxy.New(t, n.grpc)
	c.startWorker("w1", 40, proxy.Addr())
	first := time.Now().Add(500 * time.Millisecond)
	l := newLoad(40, first, "default")
	for i := range 40 {
		j := l.jobs[fmt.Sprintf("load-%04d", i)]
		j.Schedule = everyInterval(time.Second, first.Add(time.Duration(i)*25*time.Millisecond))
		j.BackoffPolicy = noBackoff()
		j.Payload = behaviour{Sleep: 300 * time.Millisecond, Fail: i%2 == 0}.encodePayload()
		l.promises[i].Every, l.promises[i].AnchorMS = time.Second, j.Schedule.GetStartTime().AsTime().UnixMilli()
		l.promises[i].FromMS = l.promises[i].AnchorMS
	}
	n.registerLoad(l)
	c.waitAllRan(l, patience)
	var faults []historycheck.Fault
	for range 4 { // a worker whose stream breaks more often waits longer
		cut := beginFault("answers lost")
		heard := len(c.matchingEvents(isEnd))
		proxy.Blackhole(faultproxy.ToClient)
		redistest.Eventually(t, patience, "results are sent and not answered", func() error {
			if more := len(c.matchingEvents(isEnd)) - heard; more < 4 {
				return fmt.Errorf("%d results", more)
			}
			return nil
		})
		proxy.CloseAll()
		proxy.Pass()
		back := len(c.matchingEvents(isStartOf("load-0000", "")))
		redistest.Eventually(t, patience, "the worker is back", func() error {
			if len(c.matchingEvents(isStartOf("load-0000", ""))) == back {
				return fmt.Errorf("not yet")
			}
			return nil
		})
		faults = append(faults, cut.endFault(time.Second))
	}
	c.waitEnds(time.Now().Add(5 * time.Second))
	jobs := n.pauseAllJobs()
	c.countersMatch(jobs, true)
	if got := proxy.Counters(); got.Closed < 4 || got.Stalled == 0 {
		t.Errorf("the faults did not hit: %+v", got)
	}
	now := time.Now().UnixMilli()
	for i := range l.promises {
		l.promises[i].UntilMS = now - 2000
	}
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: l.promises, Faults: faults, Bounds: longBounds(), Stored: storedJobs(jobs)})
	atLeast(t, "executions", r.Executions, 200)
}

func isEnd(e historycheck.Event) bool { return e.Kind == historycheck.End }

// countersMatch compares the totals that are stored with the runs that handlers
// recorded. Exact: no run was executed twice, and no lease was lost.
func (c *cluster) countersMatch(jobs jobTable, exact bool) {
	c.t.Helper()
	type tally struct {
		ok, failed, executions int64
		runs                   map[string]string // outcome of the last execution
		last                   map[string]int64  // its token
	}
	tallies := map[string]*tally{}
	for _, e := range c.matchingEvents(isEnd) {
		y := tallies[e.Job]
		if y == nil {
			y = &tally{runs: map[string]string{}, last: map[string]int64{}}
			tallies[e.Job] = y
		}
		y.executions++
		if e.Token > y.last[e.Run] {
			y.runs[e.Run], y.last[e.Run] = e.Outcome, e.Token
		}
	}
	for id, j := range jobs {
		y, s := tallies[id], j.GetStatus()
		if y == nil {
			c.t.Errorf("%s never ran", id)
			continue
		}
		for _, outcome := range y.runs {
			switch outcome {
			case historycheck.OK:
				y.ok++
			case historycheck.Failed:
				y.failed++
			}
		}
		if s.GetRunsTotal() != int64(len(y.runs)) || s.GetSucceededTotal() != y.ok || s.GetDeadTotal() != y.failed {
			c.t.Errorf("%s: %d runs, %d succeeded, %d dead are stored; handlers recorded %d, %d, %d", id,
				s.GetRunsTotal(), s.GetSucceededTotal(), s.GetDeadTotal(), len(y.runs), y.ok, y.failed)
		}
		if y.ok == 0 && s.GetConsecutiveFailures() != y.failed {
			c.t.Errorf("%s: %d failures in a row are stored, handlers recorded %d", id, s.GetConsecutiveFailures(), y.failed)
		}
		if exact && (y.executions != int64(len(y.runs)) || s.GetLostTotal() != 0) {
			c.t.Errorf("%s: %d executions of %d runs, %d losses", id, y.executions, len(y.runs), s.GetLostTotal())
		}
	}
}

type jobTable = map[string]*fermatav1.Job
