package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func demand(free int) []job.QueueDemand {
	return []job.QueueDemand{{Namespace: "ns", Queue: "q", Free: free}}
}

func (b *bed) answer(p sentPermit, leased int, due unixtime.Milli) {
	b.s.HandlePermitResults(p.node, []job.PermitResult{{ID: p.ID, Leased: leased, DueMS: due}})
	synctest.Wait()
}

func TestPermitGoesToThePeerWithTheMostSlots(t *testing.T) {
	run(t, func(b *bed) {
		b.s.SetPeerDemand("b", demand(3))
		b.s.SetPeerDemand("c", demand(7))
		b.create(0, laneOf(4), 0, 1)
		synctest.Wait()
		p := b.wantPermits(1)[0]
		if p.node != "c" || p.Shard != 0 || p.Lane != laneOf(4) || p.N != 1 || p.LockValue != b.held[0] || p.ValidFor != job.PermitValidity {
			t.Errorf("permit %+v", p)
		}
		b.wantCalls(0)
		after(100 * time.Millisecond)
		b.wantPermits(1) // none while it is not answered
		// It gave all: twice as much next time, of the peer that has most now.
		b.answer(p, 1, unixtime.MilliOf(time.Now()))
		p = b.wantPermits(2)[1]
		if p.node != "c" || p.N != 2 {
			t.Errorf("permit %+v", p)
		}
		b.answer(p, 0, unixtime.MilliOf(time.Now().Add(time.Second/2)))
		after(498 * time.Millisecond)
		b.wantPermits(2)
		after(2 * time.Millisecond)
		b.wantPermits(3)
		b.answer(b.wantPermits(3)[2], 1, job.NeverMS)
		after(300 * time.Millisecond)
		b.wantPermits(3)
	})
}

func TestLocalSlotsComeFirst(t *testing.T) {
	run(t, func(b *bed) {
		b.s.SetPeerDemand("b", demand(9))
		b.slots.done("q", 1)
		b.create(0, laneOf(4), 0, 1)
		b.create(0, laneOf(4), 5*time.Millisecond, 1)
		after(time.Millisecond)
		b.wantServed(1)
		b.wantPermits(0)
		after(5 * time.Millisecond)
		b.wantPermits(1)
	})
}

func TestPrefetchComesLast(t *testing.T) {
	run(t, func(b *bed) {
		b.s.SetPeerDemand("b", demand(1))
		b.slots.done("q", 1)
		b.slots.done("ahead of q", 1)
		for i := range 3 {
			b.create(0, laneOf(4), time.Duration(i)*5*time.Millisecond, 1)
		}
		after(time.Millisecond)
		b.wantServed(1) // in a slot
		after(5 * time.Millisecond)
		b.wantServed(1)
		p := b.wantPermits(1)[0]
		b.answer(p, 1, unixtime.MilliOf(time.Now().Add(4*time.Millisecond)))
		after(5 * time.Millisecond)
		b.wantPermits(1)
		b.slots.set(func() {
			if left := b.slots.free["ahead of q"]; left != 0 {
				t.Errorf("%d places ahead are left", left)
			}
		})
	})
}

// Where no slot is free anywhere, what is due waits for one: at the own workers rather
// than at those of a peer.
func TestPermitsForPlacesAheadComeLast(t *testing.T) {
	ahead := func(free, ahead int) []job.QueueDemand {
		return []job.QueueDemand{{Namespace: "ns", Queue: "q", Free: free, Ahead: ahead}}
	}
	run(t, func(b *bed) {
		b.slots.done("ahead of q", 1)
		b.s.SetPeerDemand("b", ahead(0, 9))
		b.s.SetPeerDemand("c", ahead(1, 0))
		for i, want := range []string{"c", "here", "b", "b"} {
			b.create(0, laneOf(uint8(i)), 0, 1)
			synctest.Wait()
			sent := b.peers.sent()
			switch {
			case want == "here":
				b.wantServed(1)
			case len(sent) == 0 || sent[len(sent)-1].node != want || sent[len(sent)-1].N != 1:
				t.Errorf("permits %+v, want the last one to be for %s", sent, want)
			}
		}
		b.wantPermits(3)
		b.look(func() {
			if left := b.s.peers["b"].ahead[queueKey{"ns", "q"}]; left != 7 {
				t.Errorf("b has %d places left, want 7", left)
			}
		})
	})
	run(t, func(b *bed) {
		b.s.SetPeerDemand("b", ahead(0, 9))
		b.create(0, laneOf(4), 0, 1)
		synctest.Wait()
		b.answer(b.wantPermits(1)[0], 0, 0) // it has no place after all
		after(3 * time.Second)
		b.wantPermits(1)
		b.s.SetPeerDemand("b", ahead(0, 1))
		synctest.Wait()
		b.answer(b.wantPermits(2)[1], 0, unixtime.MilliOf(time.Now())) // its place is still there
		after(2 * time.Millisecond)
		b.wantPermits(3)
	})
}

func TestUnansweredPermitExpires(t *testing.T) {
	run(t, func(b *bed) {
		b.s.SetPeerDemand("b", demand(9))
		b.s.SetPeerDemand("c", demand(2))
		b.create(0, laneOf(4), 0, 1)
		after(permitLife(job.PermitValidity) - time.Millisecond)
		lost := b.wantPermits(1)[0]
		after(time.Millisecond)
		p := b.wantPermits(2)[1]
		if lost.node != "b" || p.node != "c" {
			t.Errorf("asked %s, then %s", lost.node, p.node)
		}
		b.answer(lost, 1, job.NeverMS) // too late to count
		if b.permitOf(laneOf(4)) == nil {
			t.Error("an answer that came too late ended another permit")
		}
		b.answer(sentPermit{node: "b", Permit: p.Permit}, 1, job.NeverMS) // not from the node that was asked
		if b.permitOf(laneOf(4)) == nil {
			t.Error("a stranger's answer ended a permit")
		}
		after(permitLife(job.PermitValidity)) // c is silent as well: the one with most slots, again
		if p := b.wantPermits(3)[2]; p.node != "b" {
			t.Errorf("asked %s", p.node)
		}
	})
}

func TestPeerWithoutSlotsIsNotAskedAgain(t *testing.T) {
	run(t, func(b *bed) {
		b.s.SetPeerDemand("b", demand(9))
		b.create(0, laneOf(4), 0, 1)
		synctest.Wait()
		b.answer(b.wantPermits(1)[0], 0, 0)
		after(3 * time.Second)
		b.wantPermits(1)
		b.s.SetPeerDemand("b", demand(1))
		synctest.Wait()
		b.wantPermits(2)
	})
}

// What a peer stated while a permit was on its way counts, whatever the answer.
func TestDemandStatedBeforeTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		stated, leased int
		due            unixtime.Milli
		free           int
	}{
		"all used":        {4, 1, job.NeverMS, 4},
		"none used":       {4, 0, job.NeverMS, 4},
		"no slots":        {4, 0, 0, 4},
		"less than asked": {1, 1, job.NeverMS, 1},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.s.SetPeerDemand("b", demand(9))
				b.create(0, laneOf(4), 0, 1)
				synctest.Wait()
				p := b.wantPermits(1)[0]
				b.s.SetPeerDemand("b", demand(c.stated))
				if free := b.freeOf("b"); free != c.stated-p.N {
					t.Errorf("%d free while the permit is out, want %d", free, c.stated-p.N)
				}
				b.look(func() { b.s.setDue(b.s.shards[0].laneOf(laneOf(4)), job.NeverMS) })
				b.answer(p, c.leased, max(c.due, 0))
				if free := b.freeOf("b"); free != c.free {
					t.Errorf("%d free after the answer, want %d", free, c.free)
				}
			})
		})
	}
}

func TestFreeSlotsOfAPeerAreCounted(t *testing.T) {
	run(t, func(b *bed) {
		for i := range uint8(5) {
			b.create(0, laneOf(i), 0, 1)
		}
		synctest.Wait()
		b.s.SetPeerDemand("b", demand(3))
		synctest.Wait()
		sent := b.wantPermits(3)
		for i, p := range sent { // one each, highest priority first
			if p.Lane.Priority != uint8(4-i) {
				t.Errorf("permit %d is for %v", i, p.Lane)
			}
		}
		b.answer(sent[0], 1, job.NeverMS)
		b.wantPermits(3)
		b.answer(sent[1], 0, job.NeverMS) // its slot is still free
		b.wantPermits(4)
		b.s.SetPeerDemand("b", nil)
		b.answer(sent[2], 0, job.NeverMS)
		b.wantPermits(4)
	})
}

func TestPeerWithoutLinkIsPassedOver(t *testing.T) {
	run(t, func(b *bed) {
		b.peers.down["c"] = true
		b.s.SetPeerDemand("b", demand(1))
		b.s.SetPeerDemand("c", demand(9))
		b.create(0, laneOf(4), 0, 1)
		synctest.Wait()
		p := b.wantPermits(1)[0]
		if p.node != "b" {
			t.Errorf("asked %s", p.node)
		}
		b.peers.mu.Lock()
		b.peers.down["c"] = false
		b.peers.mu.Unlock()
		after(permitLife(job.PermitValidity)) // b is silent, but c is not asked before the next rescan
		if p := b.wantPermits(2)[1]; p.node != "b" {
			t.Errorf("asked %s", p.node)
		}
		after(2*permitLife(job.PermitValidity) + 100*time.Millisecond)
		sent := b.peers.sent()
		if p := sent[len(sent)-1]; p.node != "c" {
			t.Errorf("asked %s", p.node)
		}
	})
}

func TestNudgeDuringAPermitIsKept(t *testing.T) {
	run(t, func(b *bed) {
		b.s.SetPeerDemand("b", demand(9))
		b.create(0, laneOf(4), 0, 1)
		synctest.Wait()
		p := b.wantPermits(1)[0]
		b.s.LanesDueEarlier(0, []job.LaneHead{{Lane: laneOf(4), DueMS: unixtime.MilliOf(time.Now())}})
		synctest.Wait()
		b.wantPermits(1)
		b.answer(p, 1, job.NeverMS)
		b.wantPermits(2)
	})
}

func TestShardLostWithAPermitOut(t *testing.T) {
	run(t, func(b *bed) {
		b.s.SetPeerDemand("b", demand(9))
		b.create(0, laneOf(4), 0, 1)
		synctest.Wait()
		p := b.wantPermits(1)[0]
		b.lose(0)
		b.answer(p, 1, unixtime.MilliOf(time.Now()))
		after(3 * time.Second)
		b.wantPermits(1)
		if free := b.freeOf("b"); free != 8 {
			t.Errorf("%d free", free)
		}
	})
}

// permitted has node a, which holds shard 0, permit node b.
func permitted(t *testing.T, slots int, p job.Permit, prepare func(b *bed)) (b *bed, results []sentResult) {
	run(t, func(a *bed) {
		b = newBed(t, "b", a.store)
		b.slots.free["q"] = slots
		a.store.put(0, laneOf(4), unixtime.MilliOf(time.Now().Add(-time.Second)))
		a.store.put(0, laneOf(4), unixtime.MilliOf(time.Now().Add(-time.Second)))
		p.LockValue = a.held[0] + p.LockValue
		prepare(b)
		b.permitted(context.Background(), "a", p)
		b.slots.check(t)
		results = b.peers.results
	})
	return b, results
}

func TestPermitted(t *testing.T) {
	good := job.Permit{ID: 7, Lane: laneOf(4), N: 5, ValidFor: job.PermitValidity}
	nothing := func(*bed) {}
	t.Run("leases and answers", func(t *testing.T) {
		b, results := permitted(t, 9, good, nothing)
		want := sentResult{"a", laneOf(4), job.PermitResult{ID: 7, Leased: 2, DueMS: job.NeverMS}}
		if len(results) != 1 || results[0] != want || b.slots.count() != 2 {
			t.Errorf("answers %+v, %d leases", results, b.slots.count())
		}
	})
	t.Run("no more than its slots", func(t *testing.T) {
		b, results := permitted(t, 1, good, nothing)
		if len(results) != 1 || results[0].Leased != 1 || results[0].DueMS == job.NeverMS || b.slots.count() != 1 {
			t.Errorf("answers %+v, %d leases", results, b.slots.count())
		}
	})
	t.Run("a place to wait for a slot", func(t *testing.T) {
		b, results := permitted(t, 0, good, func(b *bed) { b.slots.done("ahead of q", 1) })
		if len(results) != 1 || results[0].Leased != 1 || b.slots.count() != 1 {
			t.Errorf("answers %+v, %d leases", results, b.slots.count())
		}
	})
	t.Run("no slots", func(t *testing.T) {
		b, results := permitted(t, 0, good, nothing)
		if len(results) != 1 || results[0] != (sentResult{"a", laneOf(4), job.PermitResult{ID: 7}}) || len(b.store.calls) != 0 {
			t.Errorf("answers %+v, %d calls", results, len(b.store.calls))
		}
	})
	t.Run("old lock value", func(t *testing.T) {
		stale := good
		stale.LockValue = "x"
		b, results := permitted(t, 9, stale, nothing)
		if len(results) != 0 || b.slots.count() != 0 || b.slots.free["q"] != 9 {
			t.Errorf("answers %+v, %d leases", results, b.slots.count())
		}
	})
	t.Run("too late", func(t *testing.T) {
		late := good
		late.ValidFor = 0
		b, results := permitted(t, 9, late, nothing)
		if len(results) != 0 || len(b.store.calls) != 0 || b.slots.free["q"] != 9 {
			t.Errorf("answers %+v, %d calls", results, len(b.store.calls))
		}
	})
	t.Run("a late answer", func(t *testing.T) {
		b, results := permitted(t, 9, good, func(b *bed) { b.trips(2 * job.PermitValidity) })
		if len(results) != 1 || b.slots.count() != 2 {
			t.Errorf("answers %+v, %d leases reached a worker", results, b.slots.count())
		}
	})
}

// Only what is due and has no slot waits for one.
func TestWaitsReportsQueuesWithoutSlots(t *testing.T) {
	run(t, func(b *bed) {
		wants := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := b.s.HasWaitingLanes("ns", []string{"other", "q"}); got != want {
				t.Errorf("%s: %v", what, got)
			}
		}
		wants("nothing is due", false)
		b.slots.done("q", 1)
		b.create(0, laneOf(4), 0, 1)
		wants("there was a slot", false)
		b.create(0, laneOf(4), 0, 1)
		wants("there is none", true)
		if b.s.HasWaitingLanes("ns", []string{"other"}) || b.s.HasWaitingLanes("other", []string{"q"}) {
			t.Error("nobody waits for another queue")
		}
		b.slots.done("q", 2)
		wants("there is one again", false)
	})
}
