package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestChaosPermits: one worker, so that two of three nodes lease by permits, most of them in advance. Nodes fail while
// permits are on their way. The limits of queues and the wait of a target hold, and what failed nodes had taken of the
// limits comes back.
func TestChaosPermits(t *testing.T) {
	skipInShortForm(t, "T47")
	runBesideOne(t)
	runTrials(t, bedOptions{Workers: 1, Jobs: permitJobs, Queues: []string{narrowQueue, slowQueue, targetQueue}},
		trial{ID: "T47", Name: "nodes fail while permits are on their way", Bound: permitBound, Inject: failAmidPermits},
	)
}

// permitJobs is how many steady jobs one worker has to run.
const permitJobs = 1000

// permitBound: runs of a node that cannot reach the worker's node wait until it can, and what a failed node had leased
// until its leases end.
func permitBound(lock, lease time.Duration) time.Duration {
	return cutOffTime(lock) + eitherBound(lock, lease)
}

// cutOffTime is how long nodes cannot reach each other.
func cutOffTime(lock time.Duration) time.Duration { return lock }

// Queues of the trial, with their limits.
const (
	narrowQueue  = "narrow"
	narrowRuns   = 3 // live at once
	slowQueue    = "slow"
	slowRate     = 10 // starts a second
	targetQueue  = "targeted"
	targetWait   = time.Second // after each failure of the target
	jobsOfWave   = 20          // of each queue with limits
	jobsOfTarget = 6           // beside the one that fails first
)

// permitFault is a fault of the trial: do gets the nodes with and without the worker.
type permitFault struct {
	name string
	do   func(b *bed, worker, other string)
}

var permitFaults = []permitFault{
	{name: "node without a worker killed", do: func(b *bed, _, other string) {
		b.killNode(b.nodeByID(other))
		b.startNode(other)
	}},
	{name: "node cut off from that of the worker", do: func(b *bed, worker, other string) {
		lock, _ := chaosTTLs()
		b.links[worker].cutOff(other)
		b.links[other].cutOff(worker)
		b.waitFor(cutOffTime(lock))
		b.links[worker].removeFaults()
		b.links[other].removeFaults()
	}},
	{name: "node of the worker killed", do: func(b *bed, worker, _ string) {
		b.killNode(b.nodeByID(worker))
		b.startNode(worker)
	}},
	{name: "node without a worker frozen", do: func(b *bed, _, other string) { freezeForLock(b, other) }},
	{name: "node of the worker frozen", do: func(b *bed, worker, _ string) { freezeForLock(b, worker) }},
}

// freezeForLock freezes a node until it has lost its locks.
func freezeForLock(b *bed, id string) {
	lock, _ := chaosTTLs()
	n := b.nodeByID(id)
	n.freezeProcess()
	b.waitFor(lock + time.Second)
	n.thawProcess()
}

// failAmidPermits injects each fault while limited work is under way.
func failAmidPermits(b *bed) {
	b.limitQueue(&fermatav1.QueueSettings{MaxConcurrency: narrowRuns}, narrowQueue)
	b.limitQueue(&fermatav1.QueueSettings{Rate: slowRate, Burst: 1}, slowQueue)
	b.waitFor(2 * time.Second) // by then all nodes know them
	lock, lease := chaosTTLs()
	waves := 0
	for end := time.Now().Add(chaosSpan(0)); waves == 0 || time.Now().Before(end); {
		for _, f := range permitFaults {
			worker, other := b.rolesOfNodes()
			w := b.startWave(waves, other)
			waves++
			b.injectFault(faultKind{Name: f.name, Within: permitBound(lock, lease)}, func() { f.do(b, worker, other) })
			w.endOutage()
			b.awaitSettled()
			w.awaitAll(permitBound(lock, lease))
			w.checkTarget()
		}
	}
	used := 0
	for _, n := range b.nodes {
		used += int(n.readMetric(b.t, "fermata_permits_used_total"))
	}
	b.requireEffect("permits used", used, waves*jobsOfWave/2)
	most := b.mostAtOnce(narrowQueue + "-")
	if most > narrowRuns {
		b.t.Errorf("%d runs at once, the limit is %d", most, narrowRuns)
	}
	b.requireEffect("runs at once", most, narrowRuns)
	b.checkRate(slowQueue+"-", slowRate, 1)
}

// limitQueue sets the limits of a queue. Nodes know them within about a second.
func (b *bed) limitQueue(s *fermatav1.QueueSettings, queue string) {
	b.t.Helper()
	s.Name = namespace + "/queues/" + queue
	_, err := b.nodes[0].jobs.UpdateQueueSettings(callContext(b.t), &fermatav1.UpdateQueueSettingsRequest{Settings: s})
	if err != nil {
		b.t.Fatal(err)
	}
}

// rolesOfNodes names the node that has the worker, and one of the others.
func (b *bed) rolesOfNodes() (worker, other string) {
	b.t.Helper()
	redistest.Eventually(b.t, patience, "a node has the worker", func() error {
		list, err := b.nodes[0].cluster.ListWorkers(callContext(b.t), &fermatav1.ListWorkersRequest{})
		if err != nil {
			return err
		}
		if len(list.GetWorkers()) != 1 {
			return fmt.Errorf("workers are %v", list.GetWorkers())
		}
		worker = list.GetWorkers()[0].GetNode()
		return nil
	})
	i := slices.IndexFunc(b.nodes, func(n *schedulerNode) bool { return n.id != worker })
	return worker, b.nodes[i].id
}

// wave is limited work: one-time jobs in two queues with limits, and jobs of a target that is out.
type wave struct {
	b      *bed
	number int
	ids    []string
	outage string // the target is out as long as this file exists
	ended  time.Time
}

// startWave creates jobs that are due soon, after the target has failed once.
func (b *bed) startWave(number int, node string) *wave {
	b.t.Helper()
	w := &wave{b: b, number: number, outage: filepath.Join(b.t.TempDir(), "outage")}
	err := os.WriteFile(w.outage, nil, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	n := b.nodeByID(node)
	l := &load{jobs: map[string]*fermatav1.Job{}}
	first := w.addTargeted(l, 0, time.Now())
	n.registerLoad(l)
	redistest.Eventually(b.t, patience, "the first failure of the target is stored", func() error {
		return wantStatus(n.getJob(first), func(s *fermatav1.JobStatus) bool { return s.GetCurrentAttempt() >= 2 })
	})
	l = &load{jobs: map[string]*fermatav1.Job{}}
	at := time.Now().Add(300 * time.Millisecond)
	for i := range jobsOfTarget {
		w.addTargeted(l, i+1, at)
	}
	for i := range jobsOfWave {
		w.addJob(l, narrowQueue, i, behaviour{Sleep: 100 * time.Millisecond}, at)
		w.addJob(l, slowQueue, i, behaviour{}, at)
	}
	n.registerLoad(l)
	b.awaitEvent(patience, "limited work is under way", func(e historycheck.Event) bool {
		return e.Kind == historycheck.Start && strings.HasPrefix(e.Job, w.prefix(narrowQueue))
	})
	return w
}

// prefix is how the ids of the wave's jobs in a queue begin.
func (w *wave) prefix(queue string) string { return fmt.Sprintf("%s-%d-", queue, w.number) }

// addJob adds a one-time job of the wave to a load.
func (w *wave) addJob(l *load, queue string, i int, does behaviour, at time.Time) *fermatav1.Job {
	id := w.prefix(queue) + fmt.Sprint(i)
	j := newJob(does)
	j.Queue, j.Schedule = queue, onceAt(at)
	l.jobs[id] = j
	w.ids = append(w.ids, id)
	w.b.more = append(w.b.more, historycheck.ExpectedSchedule{Job: id})
	return j
}

// addTargeted adds a job of the wave's target, and returns its id.
func (w *wave) addTargeted(l *load, i int, at time.Time) string {
	j := w.addJob(l, targetQueue, i, behaviour{FailWhile: w.outage, RetryAfter: targetWait}, at)
	j.Target = fmt.Sprintf("target-%d", w.number)
	j.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: 1000, BaseDelay: durationpb.New(100 * time.Millisecond)}
	return w.ids[len(w.ids)-1]
}

// endOutage lets the target work again, as the fault has ended.
func (w *wave) endOutage() {
	w.b.t.Helper()
	err := os.Remove(w.outage)
	if err != nil {
		w.b.t.Fatal(err)
	}
	w.ended = time.Now()
}

// awaitAll waits until all jobs of the wave have succeeded: within the bound, and the time that their limits allow for
// all of them.
func (w *wave) awaitAll(bound time.Duration) {
	b := w.b
	b.t.Helper()
	last := int64(0)
	redistest.Eventually(b.t, bound+patience, "all limited work is done", func() error {
		done := map[string]bool{}
		for _, e := range b.readEvents() {
			if slices.Contains(w.ids, e.Job) && e.Kind == historycheck.End && e.Outcome == historycheck.OK {
				done[e.Job], last = true, max(last, e.AtNS)
			}
		}
		if len(done) < len(w.ids) {
			return fmt.Errorf("%d of %d jobs are done", len(done), len(w.ids))
		}
		return nil
	})
	took := time.Duration(last - w.ended.UnixNano())
	most := bound + time.Second*jobsOfWave/slowRate + targetWait + b.pulse.Since(w.ended) + busyAllowance()
	if took > most {
		b.t.Errorf("%s: limited work took %v after the fault, want %v", b.current.ID, took, most)
	}
	b.t.Logf("wave %d: done %v after the fault", w.number, took.Round(time.Millisecond))
}

// checkTarget looks for runs of the target that started beside its probe, or before its wait was over.
func (w *wave) checkTarget() {
	b := w.b
	b.t.Helper()
	events := slices.Clone(b.matchingEvents(func(e historycheck.Event) bool {
		return strings.HasPrefix(e.Job, w.prefix(targetQueue)) && e.Kind != historycheck.ContextCancelled
	}))
	slices.SortStableFunc(events, func(x, y historycheck.Event) int { return int(x.AtNS - y.AtNS) })
	failed, failures, live := int64(0), 0, 0
	for _, e := range events {
		switch {
		case e.Kind == historycheck.Start:
			wait := time.Duration(e.AtNS - failed)
			if failed != 0 && wait < targetWait*9/10 {
				b.t.Errorf("%s started %v after its target failed, which asked for %v", e.Job, wait, targetWait)
			}
			live++
			if live > 1 {
				b.t.Errorf("%s started beside the probe of its target", e.Job)
			}
		case e.Outcome == historycheck.OK:
			atLeast(b.t, "failures of the target", failures, 1)
			return // all may start
		default:
			failed, failures = e.AtNS, failures+1
			live--
		}
	}
	b.t.Error("the target never recovered")
}

// rateSlack is how much later than it was granted a start may be leased: permits are valid for this long at most.
const rateSlack = time.Second

// checkRate checks that no more runs of these jobs were leased in any period than the rate of their queue allows.
// Tokens have the time of the lease, by the clock of Redis, in microseconds.
func (b *bed) checkRate(prefix string, rate, burst int) {
	b.t.Helper()
	var leased []int64
	for _, e := range b.matchingEvents(func(e historycheck.Event) bool {
		return e.Kind == historycheck.Start && strings.HasPrefix(e.Job, prefix)
	}) {
		leased = append(leased, e.Token)
	}
	slices.Sort(leased)
	worst := 0.0
	for i := range leased {
		for k := i; k < len(leased); k++ {
			period := time.Duration(leased[k]-leased[i]) * time.Microsecond
			worst = max(worst, float64(k-i+1-burst)-period.Seconds()*float64(rate))
		}
	}
	if worst > rateSlack.Seconds()*float64(rate) {
		b.t.Errorf("%.1f runs more were leased in a period than %d a second", worst, rate)
	}
	b.t.Logf("%d runs were leased, at most %.1f more in a period than %d a second", len(leased), worst, rate)
}
