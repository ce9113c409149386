package dispatch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// connectAhead opens a session that lets attempts wait.
func (b *bench) connectAhead(worker string, slots, prefetch int, epoch uint32) (*Session, *fakeStream) {
	b.t.Helper()
	out := &fakeStream{}
	s, err := b.d.Connect(job.Hello{
		WorkerID: worker, Namespace: "ns", Queues: []string{"q"}, Slots: slots, Epoch: epoch, Prefetch: prefetch,
	}, out)
	if err != nil {
		b.t.Fatal(err)
	}
	out.took()
	return s.(*Session), out
}

// show has a session report handlers that took so long.
func (b *bench) show(s *Session, results int, took time.Duration) {
	b.t.Helper()
	for range results {
		b.tokens++
		id := b.deliver(fmt.Sprintf("shown-%d", b.tokens))[0]
		s.Results([]job.Result{{LeaseID: id, Outcome: job.OutcomeSucceeded, Duration: took}})
		synctest.Wait()
	}
	b.ledger.took()
}

func TestPrefetchFollowsThePaceOfHandlers(t *testing.T) {
	tests := map[string]struct {
		prefetch, results int
		took              time.Duration
		want              int
	}{
		"no results yet":         {prefetch: 100, want: 0},
		"too few results":        {prefetch: 100, results: knownAfter - 1, want: 0},
		"at once":                {prefetch: 1000, results: knownAfter, want: 320},
		"as many as asked for":   {prefetch: 7, results: knownAfter, want: 7},
		"not asked for":          {prefetch: 0, results: knownAfter, want: 0},
		"2 ms":                   {prefetch: 100, results: knownAfter, took: 2 * time.Millisecond, want: 25},
		"10 ms":                  {prefetch: 100, results: knownAfter, took: 10 * time.Millisecond, want: 5},
		"slow":                   {prefetch: 100, results: knownAfter, took: 100 * time.Millisecond, want: 0},
		"a clock that went back": {prefetch: 100, results: knownAfter, took: -time.Hour, want: 100},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				s, _ := b.connectAhead("w", 10, test.prefetch, 1)
				b.show(s, test.results, test.took)
				full := b.d.Reserve("ns", "q", 10)
				r := b.d.Prefetch("ns", "q", 1000)
				if full.Count() != 10 || r.Count() != test.want {
					t.Errorf("%d slots, and %d may wait; want 10 and %d", full.Count(), r.Count(), test.want)
				}
				r.Deliver(nil)
				full.Deliver(nil)
				b.wantFree(10)
			})
		})
	}
}

func TestWhatWaitsAtAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connectAhead("w", 2, 8, 1)
		b.show(s, knownAfter, time.Millisecond)
		out.took()
		running := b.deliver("a", "b")
		s.Started(running)
		ahead := func(n int) *Reservation {
			t.Helper()
			r := b.d.Prefetch("ns", "q", n)
			if r.Count() != n {
				t.Fatalf("%d may wait, want %d", r.Count(), n)
			}
			return r
		}
		r := ahead(8)
		r.Deliver([]job.Leased{b.lease("c"), b.lease("d"), b.lease("e")})
		b.wantSent(out, "lease a", "lease b", "lease c", "lease d", "lease e")
		b.wantFree(0)
		ahead(5).Deliver([]job.Leased{b.lease("f"), b.lease("g")})
		if n := b.d.Prefetch("ns", "q", 100).Count(); n != 0 {
			t.Errorf("%d may wait before half of them have gone", n)
		}
		if w := b.d.Workers()[0]; w.Running != 2 {
			t.Errorf("%d run in 2 slots", w.Running)
		}

		// Their deadlines begin with their start; what is returned is not counted
		// and makes the handlers slow.
		s.Results(ok(running[0]))
		synctest.Wait()
		out.took()
		var waiting []string
		b.d.mu.Lock()
		for a := range s.attempts {
			if !a.started && a.pending == nil {
				waiting = append(waiting, a.id)
				if !a.deadline.IsZero() {
					t.Errorf("%s has a deadline before its start", a.id)
				}
			}
		}
		b.d.mu.Unlock()
		if len(waiting) != 5 {
			t.Fatalf("%d wait, want 5", len(waiting))
		}
		b.ledger.took()
		s.Returned(waiting[:1])
		synctest.Wait()
		if c := b.ledger.took(); len(c) != 1 || c[0].Event != (job.Return{Token: c[0].Event.(job.Return).Token}) {
			t.Errorf("got %v, want one return", c)
		}
		s.Returned(waiting[1:])
		synctest.Wait()
		b.ledger.took()
		b.wantFree(1)
		full := b.d.Reserve("ns", "q", 1)
		if n := b.d.Prefetch("ns", "q", 100).Count(); n != 0 {
			t.Errorf("%d may wait behind slow handlers", n)
		}
		full.Deliver(nil)
		s.Results(ok(running[1]))
		b.wantFree(2)
	})
}

// A slot that was free when it was reserved is the reservation's, whatever came to
// wait meanwhile.
func TestPrefetchDoesNotTakeReservedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connectAhead("w", 2, 8, 1)
		b.show(s, knownAfter, 0)
		out.took()
		slots := b.d.Reserve("ns", "q", 2)
		ahead := b.d.Prefetch("ns", "q", 8)
		leases := make([]job.Leased, 10)
		for i := range leases {
			leases[i] = b.lease(fmt.Sprint(i))
		}
		ahead.Deliver(leases[:8])
		slots.Deliver(leases[8:])
		if got := out.took(); len(got) != 10 {
			t.Errorf("worker was sent %q, want all", got)
		}
		b.wantEvents()
		s.Close("cut", nil)
	})
}
