package dispatch

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Idle workers take turns: one whose attempts end at once must not get them all.
func TestIdleWorkersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const workers, rounds = 3, 4
		got := map[string]int{}
		sessions := map[string]*Session{}
		streams := map[string]*fakeStream{}
		for i := range workers {
			name := fmt.Sprint("w", i)
			sessions[name], streams[name] = b.connect(name, 4, 1)
		}
		for i := range workers * rounds {
			id := b.deliver(fmt.Sprint("j", i))[0]
			synctest.Wait()
			for name, out := range streams {
				if len(out.took()) > 0 {
					got[name]++
					sessions[name].HandleResults(ok(id))
					synctest.Wait()
					out.took() // the acknowledgement
				}
			}
		}
		for name := range streams {
			if got[name] != rounds {
				t.Errorf("%s got %d attempts, want %d", name, got[name], rounds)
			}
		}
		b.wantFree(workers * 4)
	})
}

// A worker of several queues has its slots once.
func TestQueuesShareTheSlotsOfAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		free := func(q, p int) {
			t.Helper()
			b.d.audit(t)
			want := []job.QueueDemand{{Namespace: "ns", Queue: "p", Free: p}, {Namespace: "ns", Queue: "q", Free: q}}
			if got := b.d.Demand(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("demand: %v, want %v", got, want)
			}
		}
		connect := func(name string, slots int, queues ...string) *Session {
			s, err := b.d.Connect(job.Hello{WorkerID: name, Namespace: "ns", Queues: queues, Slots: slots, Epoch: 1}, &fakeStream{})
			if err != nil {
				t.Fatal(err)
			}
			return s.(*Session)
		}
		both, one := connect("both", 3, "p", "q"), connect("one", 5, "q")
		free(8, 3)
		p := b.d.Reserve("ns", "p", 2)
		free(6, 1)
		q := b.d.Reserve("ns", "q", 6)
		free(0, 0)
		if n := b.d.Reserve("ns", "p", 1).Count(); n != 0 {
			t.Errorf("reserved %d slots that another queue has", n)
		}
		p.Deliver(nil)
		free(2, 2)
		one.Close("done", nil)
		free(2, 2)
		q.Deliver(nil)
		free(3, 3)
		both.HandleDraining()
		free(0, 0)
		both.Close("done", nil)
		if got := b.d.Demand(); len(got) != 0 {
			t.Errorf("demand without workers: %v", got)
		}
	})
}

// OnServed reports at once that a queue has lost its last worker.
func TestTheLastWorkerOfAQueueIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		first, _ := b.connect("first", 1, 1)
		last, _ := b.connect("last", 1, 1)
		for _, c := range []struct {
			s     *Session
			words int64
		}{{first, 0}, {last, 1}} {
			before := b.demands.Load()
			c.s.Close("done", nil)
			if n := b.demands.Load() - before; n != c.words {
				t.Errorf("%s has gone: %d words, want %d", c.s.key, n, c.words)
			}
		}
	})
}

// Closed sessions are removed also from a queue that is not used.
func TestQueuesDropClosedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.connect("stays", 1, 1)
		for epoch := range uint32(3) {
			s, _ := b.connect("goes", 1, epoch+1)
			s.Close("done", nil)
		}
		b.d.mu.Lock()
		c := b.d.mu.queues[queueKey{"ns", "q"}]
		if len(c.entries) != 1 || len(c.outdated) > 1 {
			t.Errorf("one worker is here; %d seats, %d to look at", len(c.entries), len(c.outdated))
		}
		b.d.mu.Unlock()
		b.wantFree(1)
	})
}
