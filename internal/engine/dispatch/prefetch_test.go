package dispatch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
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

// show has a session report results, one every so often.
func (b *bench) show(s *Session, results int, every time.Duration) {
	b.t.Helper()
	for range results {
		time.Sleep(every)
		b.tokens++
		id := b.deliver(fmt.Sprintf("shown-%d", b.tokens))[0]
		s.HandleResults(ok(id))
		synctest.Wait()
	}
	b.ledger.took()
}

func TestPrefetchFollowsThePaceOfResults(t *testing.T) {
	const ms = time.Millisecond
	tests := map[string]struct {
		prefetch, results int
		every, idle       time.Duration
		want              int
	}{
		"no results yet":       {prefetch: 100, want: 0},
		"for too short a time": {prefetch: 100, results: 20, every: ms, want: 0},
		"4,000 a second":       {prefetch: 100, results: 100, every: ms / 4, want: 30},
		"as many as asked for": {prefetch: 7, results: 100, every: ms / 4, want: 7},
		"not asked for":        {prefetch: 0, results: 100, every: ms / 4, want: 0},
		"2,000 a second":       {prefetch: 100, results: 81, every: ms / 2, want: 10},
		"1,000 a second":       {prefetch: 100, results: 41, every: ms, want: 0},
		"50 a second":          {prefetch: 100, results: 30, every: 20 * ms, want: 0},
		"a little while ago":   {prefetch: 100, results: 100, every: ms / 4, idle: 10 * ms, want: 30},
		"a while ago":          {prefetch: 100, results: 100, every: ms / 4, idle: 50 * ms, want: 0},
		"long ago":             {prefetch: 100, results: 100, every: ms / 4, idle: time.Second, want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				s, _ := b.connectAhead("w", 10, test.prefetch, 1)
				b.show(s, test.results, test.every)
				full := b.d.Reserve("ns", "q", 10)
				time.Sleep(test.idle)
				if n := b.d.Demand()[0]; n.Free != 0 || n.Ahead != test.want {
					t.Errorf("peers hear of %d slots and %d places ahead; want 0 and %d", n.Free, n.Ahead, test.want)
				}
				r := b.d.ReserveWaiting("ns", "q", 1000)
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

func TestPace(t *testing.T) {
	now := time.Unix(0, 0)
	var p resultPace
	results := func(n int, over time.Duration) {
		for range n {
			now = now.Add(over / time.Duration(n))
			p.countResult(now)
		}
	}
	if results(4000, 40*time.Millisecond); p.waitingPlaces(100, now) != 900 || p.waitingPlaces(10, now) != 320 {
		t.Errorf("%d wait behind 100 slots of 100,000 results a second, and %d behind 10; want 900 and 320", p.waitingPlaces(100, now), p.waitingPlaces(10, now))
	}
	if results(10, 5*time.Second); p.waitingPlaces(100, now) != 0 {
		t.Errorf("%d wait behind slow handlers", p.waitingPlaces(100, now))
	}
	// After a pause it takes a count to know again.
	now = now.Add(time.Hour)
	if results(1, 0); p.waitingPlaces(100, now) != 0 {
		t.Errorf("%d wait although nothing is known", p.waitingPlaces(100, now))
	}
	if results(80, 40*time.Millisecond); p.waitingPlaces(10, now) != 10 {
		t.Errorf("%d wait, want 10", p.waitingPlaces(10, now))
	}
	if p.reset(); p.waitingPlaces(100, now) != 0 {
		t.Error("what was forgotten is known")
	}
}

// Demand has the free slots, and how many attempts would wait beyond them.
func TestDemandHasFreeSlotsAndPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connectAhead("w", 10, 100, 1)
		want := func(free, ahead int) {
			t.Helper()
			if n := b.d.Demand()[0]; n.Free != free || n.Ahead != ahead {
				t.Errorf("peers hear of %+v, want %d slots and %d places ahead", n, free, ahead)
			}
		}
		want(10, 0)
		b.show(s, 100, time.Millisecond/4)
		want(10, 30)
		reserved := b.d.Reserve("ns", "q", 9)
		want(1, 30)
		last := b.d.Reserve("ns", "q", 1)
		want(0, 30)
		some := b.d.ReserveWaiting("ns", "q", 14)
		want(0, 16)
		more := b.d.ReserveWaiting("ns", "q", 5)
		want(0, 0) // until half of them are gone
		for _, r := range []slots.Reservation{reserved, last, some, more} {
			r.Deliver(nil)
		}
		want(10, 30)
		s.Close("cut", nil)
		if n := b.d.Demand(); len(n) != 0 {
			t.Errorf("peers hear of %+v, want nothing", n)
		}
	})
}

// What may wait is judged when it is asked for: results may have stopped since the sessions
// were found to have places.
func TestPlacesAreJudgedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var slots []slots.Reservation
		for _, worker := range []string{"x", "y"} {
			s, _ := b.connectAhead(worker, 2, 100, 1)
			b.show(s, 100, time.Millisecond/4)
			slots = append(slots, b.d.Reserve("ns", "q", 2))
		}
		if n := b.d.Demand()[0]; n.Ahead < 38 {
			t.Fatalf("peers hear of %+v, want 38 places at y and some at x", n)
		}
		time.Sleep(time.Second)
		if r := b.d.ReserveWaiting("ns", "q", 1000); r.Count() != 0 {
			t.Errorf("%d may wait behind handlers that do not end", r.Count())
		}
		for _, r := range slots {
			r.Deliver(nil)
		}
		b.wantFree(4)
	})
}

// twoRun is a worker with short handlers, both of whose slots are taken by a and b; 8 may wait.
func twoRun(t *testing.T) (b *bench, s *Session, out *fakeStream, running []string) {
	b = newBench(t)
	session, out := b.connectAhead("w", 2, 8, 1)
	b.show(session, 60, time.Millisecond/2)
	out.took()
	running = b.deliver("a", "b")
	session.HandleStarted(running)
	return b, session, out, running
}

func TestAttemptsThatWaitAtAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, out, running := twoRun(t)
		ahead := func(n int) slots.Reservation {
			t.Helper()
			r := b.d.ReserveWaiting("ns", "q", n)
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
		if n := b.d.ReserveWaiting("ns", "q", 100).Count(); n != 0 {
			t.Errorf("%d may wait before half of them have gone", n)
		}
		if w := b.d.Workers()[0]; w.Running != 2 {
			t.Errorf("%d run in 2 slots", w.Running)
		}

		// Their deadlines begin with their start; what is returned is not counted
		// and makes the handlers slow.
		s.HandleResults(ok(running[0]))
		synctest.Wait()
		out.took()
		var waiting []string
		b.d.mu.Lock()
		for _, a := range s.attempts {
			if !a.started && a.pendingEvent == nil {
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
		s.HandleReturned(waiting[:1])
		synctest.Wait()
		if c := b.ledger.took(); len(c) != 1 || c[0].Input != (job.ReturnLease{Token: c[0].Input.(job.ReturnLease).Token}) {
			t.Errorf("got %v, want one return", c)
		}
		s.HandleReturned(waiting[1:])
		synctest.Wait()
		b.ledger.took()
		b.wantFree(1)
		full := b.d.Reserve("ns", "q", 2)
		if n := b.d.ReserveWaiting("ns", "q", 100).Count(); n != 0 {
			t.Errorf("%d may wait behind slow handlers", n)
		}
		full.Deliver(nil)
		s.HandleResults(ok(running[1]))
		b.wantFree(2)
	})
}

// A slot that was free when it was reserved is the reservation's, whatever came to
// wait meanwhile.
func TestPrefetchDoesNotTakeReservedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connectAhead("w", 2, 8, 1)
		b.show(s, 60, time.Millisecond/2)
		out.took()
		slots := b.d.Reserve("ns", "q", 2)
		ahead := b.d.ReserveWaiting("ns", "q", 8)
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

// Slots that come free while a call for places is under way are slots like others: its server
// may be away.
func TestSlotsThatComeFreeAreNotPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, out, running := twoRun(t)
		away := b.d.ReserveWaiting("ns", "q", 8)
		if away.Count() != 8 {
			t.Fatalf("%d may wait, want 8", away.Count())
		}
		if n := b.d.ReserveWaiting("ns", "q", 8).Count(); n != 0 {
			t.Errorf("%d places are promised twice", n)
		}
		s.HandleResults([]job.Result{ok(running[0])[0], ok(running[1])[0]})
		b.wantFree(2)
		if got := out.took(); len(got) != 4 { // the acknowledgements in either order
			t.Errorf("worker was sent %q, want two leases and two acknowledgements", got)
		}
		b.deliver("c", "d")
		leases := make([]job.Leased, 8)
		for i := range leases {
			leases[i] = b.lease(fmt.Sprint(i))
		}
		away.Deliver(leases)
		if got := out.took(); len(got) != 10 {
			t.Errorf("worker was sent %q, want all", got)
		}
		b.wantFree(0)
		s.Close("cut", nil)
	})
}

// Freed counts slots that came free; a place to wait for one is none.
func TestPlacesToWaitAreNotFreeSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 2, 1)
		b.deliver("a", "b")
		b.d.mu.Lock()
		s.hello.Prefetch = 100
		s.resultPace = resultPace{lastRate: 10_000}
		s.markOutdated()
		b.d.mu.Unlock()
		r := b.d.ReserveWaiting("ns", "q", 5)
		if r.Count() != 5 {
			t.Fatalf("%d places", r.Count())
		}
		b.d.Reserve("ns", "q", 1) // now a caller waits
		freed := 0
		hear := func(slots []FreedSlots) {
			for _, x := range slots {
				freed += x.N
			}
		}
		b.freed.Store(&hear)
		r.Deliver(nil)
		b.wantFree(0)
		if freed != 0 {
			t.Errorf("no slot is free, and %d are said to have come free", freed)
		}
	})
}
