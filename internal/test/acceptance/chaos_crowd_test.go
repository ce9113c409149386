package acceptance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestChaosCrowds: one queue wants far more than there is, and clients want more
// of a node than its connections can carry.
func TestChaosCrowds(t *testing.T) {
	skipInShortForm(t, "T36", "T39")
	runBesideOne(t)
	runTrials(t, bedOptions{Flags: []string{"--redis-pool-size", "4"}},
		trial{ID: "T36", Name: "one queue owns nine tenths of the due work", Bound: calmBound, Inject: crowdQueue, LongOnly: true},
		trial{ID: "T39", Name: "clients hold all connections to a slow Redis", Bound: calmBound, Inject: crowdClients, LongOnly: true},
	)
}

// crowdQueue gives workers of twenty slots twice as much of one queue as they can
// do. Another queue of theirs is served as if it were alone.
func crowdQueue(b *bed) {
	const slots, each = 20, 200 * time.Millisecond
	crowd := int(2 * slots * time.Second / each) // jobs of one a second
	w := b.startWorkerOf("crowd", slots, []string{"hot", "cool"}, b.nodes[0].grpc)
	cool := crowd / 10
	var from time.Time
	span := chaosSpan(5 * time.Second)
	b.injectFault(faultKind{Name: "crowded queue", Harmless: true}, func() {
		first := time.Now().Add(1500 * time.Millisecond).Truncate(time.Millisecond)
		l := &load{jobs: map[string]*fermatav1.Job{}}
		add := func(id, queue string, does behaviour, phase float64) {
			start := first.Add(time.Duration(phase * float64(time.Second))).Truncate(time.Millisecond)
			j := newJob(does)
			j.Queue, j.Schedule = queue, everyInterval(time.Second, start)
			l.jobs[id] = j
			l.promises = append(l.promises, historycheck.ExpectedSchedule{Job: id})
		}
		for i := range crowd {
			add(fmt.Sprintf("hot-%03d", i), "hot", behaviour{Sleep: each}, fractionalPart(float64(i)*0.618))
		}
		for i := range cool {
			add(fmt.Sprintf("cool-%03d", i), "cool", behaviour{}, fractionalPart(float64(i)*0.618))
		}
		b.nodeByID("c").registerLoad(l)
		b.more = append(b.more, l.promises...)
		from = first.Add(2 * time.Second)
		b.waitEnds(from.Add(span))
	})
	lag := map[string][]time.Duration{}
	for _, e := range b.matchingEvents(func(e historycheck.Event) bool {
		return e.Kind == historycheck.Start && e.Worker == "crowd" && e.AtNS > from.UnixNano()
	}) {
		queue, _, _ := strings.Cut(e.Job, "-")
		lag[queue] = append(lag[queue], time.Duration(e.AtNS-e.DueMS*1e6))
	}
	cools := sortedCopy(lag["cool"])
	b.requireEffect("runs of the other queue", len(cools), cool*int(span/time.Second)/2)
	b.requireEffect("milliseconds that half of the crowd waits", int(quantileOfSorted(sortedCopy(lag["hot"]), 0.5).Milliseconds()), 100)
	allowed := b.pulse.Since(from) + busyAllowance()
	if p99, most := quantileOfSorted(cools, 0.99), quantileOfSorted(cools, 1); p99 > time.Second+allowed || most > 2*time.Second+allowed {
		b.t.Errorf("beside the crowd the other queue waits %v (p99), %v at most; want 1s and 2s, and %v for a busy machine",
			p99, most, allowed)
	} else {
		b.t.Logf("beside the crowd the other queue waits p50 %v p99 %v max %v", quantileOfSorted(cools, 0.5), p99, most)
	}
	for id := range b.more { // the crowd goes home
		if p := b.more[id]; strings.HasPrefix(p.Job, "hot-") || strings.HasPrefix(p.Job, "cool-") {
			if _, err := b.nodeByID("a").jobs.PauseJob(callContext(b.t), &fermatav1.PauseJobRequest{Name: jobName(p.Job)}); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	w.terminate(25 * time.Second)
}

// crowdClients calls a node far more often than its four connections for clients can
// bear, over a slow link. Locks, leases and results have connections of their own.
func crowdClients(b *bed) {
	n := b.nodeByID("a")
	callers := scaleJobs(400)
	var done, shed, other atomic.Int64
	var slowest atomic.Int64
	lost := func() float64 {
		return b.sumMetric("fermata_shard_lock_losses_total", `reason="expired"`) + b.sumMetric("fermata_leases_expired_total")
	}
	before, begun := lost(), time.Now()
	b.injectFault(faultKind{Name: "crowd of clients", Harmless: true}, func() {
		b.links["a"].redis.LatencyBetween(10*time.Millisecond, 20*time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), chaosSpan(4*time.Second))
		defer cancel()
		var crowd sync.WaitGroup
		for i := range callers {
			crowd.Go(func() {
				for k := i; ctx.Err() == nil; k++ {
					began := time.Now()
					c, end := context.WithTimeout(context.Background(), 10*time.Second)
					_, err := n.jobs.GetJob(c, &fermatav1.GetJobRequest{Name: jobName(fmt.Sprintf("edit-%d", k%edited))})
					end()
					took := time.Since(began)
					for most := slowest.Load(); int64(took) > most && !slowest.CompareAndSwap(most, int64(took)); most = slowest.Load() {
						continue
					}
					switch status.Code(err) {
					case codes.OK:
						done.Add(1)
					case codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded:
						shed.Add(1)
					default:
						other.Add(1)
						b.t.Errorf("get: %v", err)
					}
				}
			})
		}
		crowd.Wait()
	})
	b.t.Logf("%d calls answered, %d refused, the slowest took %v", done.Load(), shed.Load(), time.Duration(slowest.Load()))
	b.requireEffect("calls", int(done.Load()+shed.Load()), callers)
	b.requireEffect("milliseconds of the slowest call", int(slowest.Load()/1e6), 200)
	if now := lost(); now > before {
		b.t.Errorf("%v locks and leases were lost", now-before)
	}
	if took := time.Duration(slowest.Load()); took > 3*time.Second+b.pulse.Since(begun)+busyAllowance() {
		b.t.Errorf("a call took %v", took)
	}
}
