package acceptance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// clockStep is how far Redis's clock is stepped: far beyond the lives of locks and
// leases, and many intervals.
const clockStep = 10 * time.Minute

// TestChaosClockSteps steps the clock that counts back by ten minutes, and forward
// again to ten minutes ahead. Back, work goes on at half speed, and no nominal time
// comes twice. Forward, what was passed over is made up for by one run, not by all.
func TestChaosClockSteps(t *testing.T) {
	skipInShortForm(t, "T32")
	runBesideOne(t)
	server := newRedis(t)
	c := newRacedCluster(t, server.URL())
	clock := startWalkingClock(t, server.Client(), time.Date(2031, 3, 1, 0, 0, 0, 0, time.UTC))
	c.startVirtual("a")
	n := c.startVirtual("b")
	c.awaitSettled()
	c.startWorker("w1", 60, n.grpc)
	const jobs = 20
	for i := range jobs {
		j := newJob(behaviour{})
		j.Schedule = everyInterval(time.Second, time.UnixMilli(clock.ms.Load()+500+int64(i)*45))
		n.createJob(fmt.Sprintf("clock-%02d", i), j)
	}
	f := &figures{ID: "T32", Name: "Redis's clock steps", Faults: map[string]int{}, Bound: 2 * calmLag}
	began := time.Now()
	const span = 10 * time.Second
	const seconds = int(span / time.Second)
	// watch counts the starts of a stretch of time, all jobs together, and the longest
	// that one job waited in it.
	watch := func(what string, least, most int) {
		t.Helper()
		from := time.Now()
		c.waitEnds(from.Add(span))
		got := len(c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start && e.AtNS > from.UnixNano() }))
		t.Logf("%s: %d starts in %v", what, got, span)
		if got < least || got > most {
			t.Errorf("%s: %d starts, want %d to %d", what, got, least, most)
		}
		if gap, job := startGap(c.readEvents(), from.UnixNano(), time.Now().UnixNano()); gap > f.Gap {
			f.Gap, f.Job = gap, job
		}
	}
	step := func(d time.Duration) {
		clock.ms.Add(d.Milliseconds())
		f.Faults[fmt.Sprintf("step of %v", d)]++
	}
	c.waitEnds(time.Now().Add(2 * time.Second))
	watch("before", jobs*(seconds-1), jobs*(seconds+2))
	step(-clockStep)
	watch("after a step back", jobs*(seconds-2)/2, jobs*(seconds/2+2))
	step(2 * clockStep)
	watch("after a step forward", jobs*(seconds-1), jobs*(seconds+3))
	f.Took = time.Since(began)
	if f.Gap > f.Bound {
		t.Errorf("T32: %s waited %v, want at most %v", f.Job, f.Gap, f.Bound)
	}
	c.onceEach()
	f.Power = []shown{{"steps", len(f.Faults), 2}}
	t.Logf("T32: %v", f)
	addFigures(f)
}

// startGap is the longest between two starts of a job in a stretch of time.
func startGap(events []historycheck.Event, fromNS, toNS int64) (longest time.Duration, of string) {
	last := map[string]int64{}
	for _, e := range events {
		if e.Kind != historycheck.Start || e.AtNS < fromNS || e.AtNS > toNS {
			continue
		}
		if before, ok := last[e.Job]; ok && time.Duration(e.AtNS-before) > longest {
			longest, of = time.Duration(e.AtNS-before), e.Job
		}
		last[e.Job] = e.AtNS
	}
	return longest, of
}

// onceEach wants every nominal time to have started at most once, and tokens to grow,
// whatever the clock did.
func (c *cluster) onceEach() {
	c.t.Helper()
	nominal, last := map[string]int64{}, map[string]int64{}
	for _, e := range c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.Start }) {
		if e.NominalMS <= nominal[e.Job] {
			c.t.Errorf("%s: nominal time %d after %d", e.Job, e.NominalMS, nominal[e.Job])
		}
		if e.Token <= last[e.Job] {
			c.t.Errorf("%s: token %d after %d", e.Job, e.Token, last[e.Job])
		}
		nominal[e.Job], last[e.Job] = e.NominalMS, e.Token
	}
}

// walkingClock is a virtual clock that goes at the pace of the real one.
type walkingClock struct {
	ms      atomic.Int64
	walking sync.WaitGroup
}

func startWalkingClock(t testing.TB, client *redis.Client, from time.Time) *walkingClock {
	t.Helper()
	w := &walkingClock{}
	w.ms.Store(from.UnixMilli())
	if err := client.Set(callContext(t), clockKey, w.ms.Load(), 0).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.walking.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			passed := time.Since(last).Milliseconds()
			last = last.Add(time.Duration(passed) * time.Millisecond)
			if err := client.Set(ctx, clockKey, w.ms.Add(passed), 0).Err(); err != nil && ctx.Err() == nil {
				t.Errorf("clock: %v", err)
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		w.walking.Wait()
	})
	return w
}
