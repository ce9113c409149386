package admission

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// late has every answer, of limits and of the ledger, come so late.
func (b *bed) late(d time.Duration) {
	b.limits.set(func() { b.limits.late = d })
	b.store.set(func() { b.store.delay = func(job.Change) time.Duration { return d } })
}

// recovering puts a job of all gates that is part of a recovery: it needs its turn, locks, a place in
// the queue, a target, and becomes a record of its own.
func (b *bed) recovering(locked int) {
	keys := make([]string, locked)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	b.put(recurring("a", overlap(job.OverlapAllowAll), locks(keys...), target("t")))
	b.store.set(func() { b.store.records["ns/a"].State.Recovery = true })
	b.settings(job.QueueSettings{MaxConcurrency: 9})
}

// A run waits for few answers in sequence: its turn, one for each unit, the start; its target's circuit is read
// meanwhile. So it starts where answers are late, and enough of its lease is left.
func TestAnswersInSequence(t *testing.T) {
	const answer = 600 * time.Millisecond
	for _, locked := range []int{0, 1, 4} {
		t.Run(fmt.Sprint(locked, " locks"), func(t *testing.T) {
			run(t, func(b *bed) {
				b.recovering(locked)
				b.late(answer)
				began := time.Now()
				leases := b.lease("ns/a")
				b.a.Reserve("ns", "q", 1).Deliver(leases)
				answers := 1 + (locked + 1) + 1
				after(time.Duration(answers)*answer + time.Millisecond)
				b.wantGot("ns/a#r0")
				if n := b.limits.count("read"); n != 1 {
					t.Errorf("circuits are read %d times", n)
				}
				if left := ttl - time.Since(began); left < ttl/2 {
					t.Errorf("%v of the lease are left", left)
				}
			})
		})
	}
}

// The target of a run that waits is half open: still one run is the probe, whatever was read ahead.
func TestOneProbeWhereAnswersAreLate(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", target("host"), locks("x")))
		b.deliver("ns/a")
		b.end("ns/a", failure)
		open := b.openFor()
		if open <= 0 {
			t.Errorf("circuit %q after a failure", b.circuit())
		}
		after(open + time.Second)
		b.slots.mu.Lock()
		before := len(b.slots.delivered)
		b.slots.mu.Unlock()
		b.put(recurring("c", target("host"), locks("y")), recurring("d", target("host"), locks("z")))
		b.late(100 * time.Millisecond)
		for _, id := range []job.RecordID{"ns/c", "ns/d"} { // each a batch of its own: both read the circuit before either sets it
			leases := b.lease(id)
			b.a.Reserve("ns", "q", 1).Deliver(leases)
		}
		after(400 * time.Millisecond)
		b.slots.mu.Lock()
		probes := len(b.slots.delivered) - before
		b.slots.mu.Unlock()
		if probes != 1 {
			t.Errorf("%d runs are sent to find out about the target, want 1", probes)
		}
	})
}

// A run that is denied a unit ends no call that is under way, and has no effect on the circuit.
func TestDeniedRunThatReadAhead(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b", locks("k"), target("t")))
		b.deliver("ns/a")
		b.late(100 * time.Millisecond)
		leases := b.lease("ns/b")
		b.a.Reserve("ns", "q", 1).Deliver(leases)
		after(time.Second)
		b.wantGot("ns/a")
		b.wantHeld("ns/b", job.HeldLock, "k", "a")
		if n := b.limits.count("swap"); n != 0 {
			t.Errorf("%d circuits are set for a run that does not start", n)
		}
	})
}

// Where answers are quick no circuit is read for runs that wait for a lock.
func TestQuickAnswersAreReadInOrder(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b", locks("k"), target("t")))
		b.deliver("ns/a", "ns/b")
		b.wantGot("ns/a")
		if n := b.limits.count("read"); n != 0 {
			t.Errorf("circuits are read %d times", n)
		}
	})
}

// The time at the gates is that of all answers, and leaves the rest of the lease to the run.
func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		ttl, latency time.Duration
		units        int
		want         time.Duration
	}{
		{30 * time.Second, 0, 5, 3 * time.Second},
		{30 * time.Second, time.Millisecond, 5, 3 * time.Second},
		{30 * time.Second, 600 * time.Millisecond, 0, 4800 * time.Millisecond},
		{30 * time.Second, 600 * time.Millisecond, 2, 6 * time.Second},
		{30 * time.Second, time.Second, 16, 10 * time.Second},
		{5 * time.Second, time.Second, 0, 5 * time.Second / 3},
		{5 * time.Second, 0, 0, time.Second},
	} {
		o := Options{LeaseTTL: tt.ttl, Latency: func() time.Duration { return tt.latency }}
		if got := o.gateBudget(tt.units); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
		if used := o.gateBudget(tt.units) + o.renewPeriod() + o.callTimeout(); used >= tt.ttl {
			t.Errorf("%+v: a unit may be prolonged after %v only", tt, used)
		}
	}
}

// Queues with limits of different kinds are asked for at the same time.
func TestLimitsOfQueuesAreTakenTogether(t *testing.T) {
	run(t, func(b *bed) {
		const answer = 600 * time.Millisecond
		narrow, slow := job.QueueKey{Namespace: "ns", Queue: "narrow"}, job.QueueKey{Namespace: "ns", Queue: "slow"}
		b.limits.set(func() {
			b.limits.settings[narrow] = job.QueueSettings{MaxConcurrency: 3}
			b.limits.settings[slow] = job.QueueSettings{Rate: 2, Burst: 2}
		})
		after(2 * time.Second)
		b.late(answer)
		began := time.Now()
		grants := b.a.TakeStarts(t.Context(), []job.QueueRequest{{Queue: narrow, N: 5}, {Queue: slow, N: 5}})
		if took := time.Since(began); took != answer {
			t.Errorf("it took %v", took)
		}
		if grants[0].N != 3 || grants[1].N != 2 || grants[0].Limit != job.LimitConcurrency || grants[1].Limit != job.LimitRate {
			t.Errorf("grants %+v", grants)
		}
		synctest.Wait()
	})
}
