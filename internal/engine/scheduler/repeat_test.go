package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// What a call has leased is found although its answer was lost.
func TestALostAnswerIsAskedForAgain(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 3)
		lost := 0
		b.store.set(func() { b.store.lose = func(int) bool { lost++; return lost <= 4 } })
		b.create(0, laneOf(5), 0, 3)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := b.slots.count(); n != 3 {
			t.Errorf("%d of 3 records reached a worker", n)
		}
		if n := len(b.slots.returned); n != 0 {
			t.Errorf("%d leases were handed back", n)
		}
	})
}

// A clock that Redis refuses meanwhile is no answer: the call before it has leased.
func TestARefusedClockDoesNotEndARepetition(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 3)
		leased, refused := false, 0
		b.store.set(func() {
			b.store.lose = func(int) bool {
				first := !leased
				leased = true
				return first
			}
			b.store.refuse = func(int) error {
				if !leased || refused == 3 {
					return nil
				}
				refused++
				return job.ErrClockJump
			}
		})
		b.create(0, laneOf(5), 0, 3)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := b.slots.count(); n != 3 {
			t.Errorf("%d of 3 records reached a worker", n)
		}
	})
}

// away has calls for one shard fail as those to a server that is away.
func away(sick int) func(shard int) error {
	return func(shard int) error {
		if shard == sick {
			return job.ErrUnavailable
		}
		return nil
	}
}

// A server that does not answer costs the shards of others nothing.
func TestAShardWithoutAnswersHoldsUpNoOther(t *testing.T) {
	run(t, func(b *bed) {
		const sick, healthy = 0, 1
		b.acquire(healthy)
		b.slots.done("q", 100)
		b.store.set(func() { b.store.fail = away(sick) })
		for range 8 {
			b.create(sick, laneOf(5), 0, 1)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		b.store.set(func() { b.store.calls = nil })
		for range 20 {
			b.create(healthy, laneOf(5), 0, 1)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := b.slots.count(); n != 20 {
			t.Errorf("%d of 20 records were leased", n)
		}
		b.store.set(func() {
			for _, c := range b.store.calls {
				for _, q := range c.requests {
					if q.Shard == sick && len(c.requests) > 1 {
						t.Error("a call waits for both")
					}
				}
			}
			b.store.fail = func(int) error { return nil }
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := b.slots.count(); n != 28 {
			t.Errorf("%d of 28 records were leased after the recovery", n)
		}
	})
}

// A call under a permit whose answer is lost is repeated as well, so that its leases
// do not have to run out. Until it is answered, no other permit for the shard is used.
func TestPermittedCallWithoutAnswerIsRepeated(t *testing.T) {
	run(t, func(a *bed) {
		b := newBed(t, "b", a.store)
		b.slots.free["q"] = 9
		b.start()
		defer b.stop()
		for range 2 {
			a.store.put(0, laneOf(4), unixtime.MilliOf(time.Now().Add(-time.Second)))
		}
		lost := 0
		a.store.set(func() { a.store.lose = func(int) bool { lost++; return lost <= 3 } })
		p := job.Permit{ID: 7, Lane: laneOf(4), N: 5, ValidFor: job.PermitValidity, LockValue: a.held[0]}
		b.permitted(context.Background(), "a", p)
		synctest.Wait()
		if got := b.slots.count(); got != 0 {
			t.Fatalf("%d leases of a call without an answer", got)
		}
		calls := func() (n int) { a.store.set(func() { n = len(a.store.calls) }); return n }
		before := calls()
		b.permitted(context.Background(), "a", p)
		if n := calls(); n != before {
			t.Errorf("a second permit made %d calls while the first is in doubt", n-before)
		}
		after(4 * errorPause)
		if got, n := b.slots.count(), calls(); got != 2 || n != 4 {
			t.Errorf("%d leases reached a worker after %d calls", got, n)
		}
		b.slots.check(t)
		a.store.put(0, laneOf(4), unixtime.MilliOf(time.Now()))
		b.permitted(context.Background(), "a", p)
		if got := b.slots.count(); got != 3 {
			t.Errorf("%d leases; the next permit is not used", got)
		}
	})
}

// A repetition that hangs holds no slots: those that come free are for the shards of other
// servers.
func TestARepetitionHoldsNoSlots(t *testing.T) {
	run(t, func(b *bed) {
		const sick, healthy = 0, 1
		b.acquire(healthy)
		b.slots.done("q", 10)
		b.store.set(func() {
			b.store.fail = away(sick)
			b.store.executed = func() {
				hangs := false
				b.store.set(func() {
					last := b.store.calls[len(b.store.calls)-1]
					hangs = last.requests[0].Shard == sick
				})
				if hangs {
					time.Sleep(3 * time.Second)
				}
			}
		})
		b.create(sick, laneOf(5), 0, 50)
		time.Sleep(3500 * time.Millisecond) // the call itself holds slots, and lasts 3 s
		for range 5 {
			b.slots.set(func() {
				if b.slots.open > 0 {
					t.Errorf("%d reservations, %d slots free, while a repetition hangs", b.slots.open, b.slots.free["q"])
				}
			})
			time.Sleep(3 * time.Second)
		}
		b.create(healthy, laneOf(5), 0, 10)
		time.Sleep(10 * time.Millisecond)
		b.wantServed(10)
	})
}

// Each of two calls under permits for one shard has its leases looked for.
func TestAllPermittedCallsWithoutAnswerAreRepeated(t *testing.T) {
	run(t, func(a *bed) {
		b := newBed(t, "b", a.store)
		b.slots.free["q"] = 9
		b.start()
		defer b.stop()
		for i := range 2 {
			a.store.put(0, laneOf(uint8(4+i)), unixtime.MilliOf(time.Now().Add(-time.Second)))
		}
		lost := 0
		a.trips(10 * time.Millisecond)
		a.store.set(func() { a.store.lose = func(int) bool { lost++; return lost <= 2 } })
		for i := range 2 {
			go b.permitted(context.Background(), "a", job.Permit{
				ID: int64(i), Lane: laneOf(uint8(4 + i)), N: 5, ValidFor: job.PermitValidity, LockValue: a.held[0],
			})
		}
		after(4 * errorPause)
		if n := b.slots.count(); n != 2 {
			t.Errorf("%d of 2 leases reached a worker", n)
		}
		if b.s.hasUnansweredCall(0) {
			t.Error("the shard is in doubt for ever")
		}
		b.slots.check(t)
	})
}

// A server that is away keeps a leaser for no longer than the holder waits for an answer.
func TestAPermittedCallEndsWithThePermit(t *testing.T) {
	run(t, func(a *bed) {
		b := newBed(t, "b", a.store)
		b.slots.free["q"] = 9
		b.start()
		defer b.stop()
		a.store.put(0, laneOf(4), unixtime.MilliOf(time.Now().Add(-time.Second)))
		a.trips(3 * time.Second)
		began := time.Now()
		b.permitted(context.Background(), "a", job.Permit{ID: 1, Lane: laneOf(4), N: 5, ValidFor: job.PermitValidity, LockValue: a.held[0]})
		if took := time.Since(began); took > permitLife(job.PermitValidity) {
			t.Errorf("it took %v", took)
		}
		b.slots.set(func() {
			if b.slots.free["q"] != 9 {
				t.Errorf("%d slots are free", b.slots.free["q"])
			}
		})
		a.trips(time.Millisecond)
		after(2 * errorPause)
		if n := b.slots.count(); n != 0 {
			t.Errorf("%d leases of a call that was not made", n)
		}
	})
}
