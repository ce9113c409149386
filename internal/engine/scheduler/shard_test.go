package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// The same for a rescan that is on its way.
func TestNudgeDuringARescanIsKept(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 5)
		created := false
		b.store.set(func() {
			b.store.scanned = func() {
				if !created {
					created = true
					b.create(0, laneOf(1), 0, 1)             // a lane that the rescan did not see
					b.create(0, laneOf(2), time.Second/2, 1) // and one that is due before the next
				}
			}
		})
		b.trips(4 * time.Millisecond)
		after(1100 * time.Millisecond)
		b.wantServed(1)
		after(450 * time.Millisecond)
		b.wantServed(2)
	})
}

func TestRescanFindsWhatALostNudgeMissed(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 5)
		b.store.put(0, laneOf(1), unixtime.MilliOf(time.Now()))
		after(500 * time.Millisecond)
		b.wantServed(0)
		after(510 * time.Millisecond)
		b.wantServed(1)
	})
}

func TestRescanMakesUpForALostNotificationOfSlots(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), 0, 1)
		synctest.Wait()
		b.slots.mu.Lock()
		b.slots.free["q"] = 1
		b.slots.mu.Unlock()
		after(1100 * time.Millisecond)
		b.wantServed(1)
	})
}

func TestLockThatCannotBeTrusted(t *testing.T) {
	run(t, func(b *bed) {
		value := b.held[0]
		b.mu.Lock()
		delete(b.held, 0)
		b.mu.Unlock()
		b.slots.done("q", 1)
		b.create(0, laneOf(1), 0, 1)
		after(time.Second)
		b.wantCalls(0)
		b.mu.Lock()
		b.held[0] = value
		b.mu.Unlock()
		after(lockRetryPause)
		b.wantServed(1)
	})
}

// A shard that is lost and won during a call has no second call before the first
// has ended, and forgets nothing.
func TestShardLostAndWonDuringACall(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 9)
		b.trips(50 * time.Millisecond)
		b.create(0, laneOf(1), 0, 1)
		after(10 * time.Millisecond)
		b.lose(0)
		b.create(0, laneOf(1), 0, 1)
		b.acquire(0)
		b.create(0, laneOf(2), 0, 1)
		after(39 * time.Millisecond)
		b.wantCalls(1)
		after(2 * time.Millisecond)
		b.wantServed(0) // the script of the first call saw the new lock value
		after(120 * time.Millisecond)
		b.wantServed(3)
		b.wantCalls(3) // the new shard begins with one lease a lane
	})
}

// What a rescan read before a shard was lost and won does not pass for a reading
// of the newly won shard.
func TestShardLostAndWonDuringARescan(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 9)
		once := false
		b.store.set(func() {
			b.store.scanned = func() {
				if !once {
					once = true
					b.lose(0)
					b.store.put(0, laneOf(1), unixtime.MilliOf(time.Now())) // nudges another node
					b.acquire(0)
				}
			}
		})
		after(time.Second + time.Millisecond)
		b.wantServed(1)
	})
}

func TestLostShardIsLeftAlone(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), 0, 1)
		b.create(0, laneOf(2), time.Second, 1)
		synctest.Wait()
		b.lose(0)
		b.look(func() {
			for key, f := range b.s.backlog.flows {
				if len(f.due) != 0 {
					t.Errorf("lane %v of a lost shard waits for slots", key)
				}
			}
		})
		b.slots.done("q", 9)
		after(3 * time.Second)
		b.wantCalls(0)
	})
}

// A rescan forgets lanes that are empty, and flows that nothing is due in.
func TestEmptyLanesAreForgotten(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 1)
		b.s.LanesDueEarlier(0, []job.LaneHead{{Lane: laneOf(1), DueMS: 1}, {Lane: laneOf(2), DueMS: job.NeverMS - 1}})
		b.s.LanesDueEarlier(7, []job.LaneHead{{Lane: laneOf(1), DueMS: 1}}) // of a shard that is not held
		after(1100 * time.Millisecond)
		b.wantCalls(1)
		after(time.Second)
		b.look(func() {
			if lanes, flows := len(b.s.shards[0].lanes), len(b.s.backlog.flows); lanes != 0 || flows != 0 {
				t.Errorf("%d lanes, %d flows are left", lanes, flows)
			}
		})
	})
}

// Shards with many lanes are listed in turns; of the others what is due is read.
func TestShardsWithManyLanesAreListedInTurns(t *testing.T) {
	run(t, func(b *bed) {
		b.acquire(2, 5)
		synctest.Wait()
		expect := func(whole, due string) {
			t.Helper()
			scan := b.s.beginScan(true)
			slices.Sort(scan.due)
			if got := fmt.Sprint(scan.listed); got != whole || fmt.Sprint(scan.due) != due {
				t.Errorf("listed %v and read what is due of %v, want %s and %s", scan.listed, scan.due, whole, due)
			}
		}
		expect("[0 2 5]", "[]")
		b.look(func() {
			for _, sh := range b.s.shards {
				for i := range listedLanes/2 + 1 {
					sh.laneOf(laneOf(1, fmt.Sprint("q", i)))
				}
			}
		})
		expect("[0]", "[2 5]")
		expect("[2]", "[0 5]")
		expect("[5]", "[0 2]")
		// One that was not read is listed beside the others, whose turns go on.
		b.look(func() { b.s.shards[5].lanesRead = false })
		expect("[5 0]", "[2]")
		expect("[5 2]", "[0]")
		expect("[5 0]", "[2]")
		b.look(func() { b.s.shards[5].lanesRead = true })
		// What is due is found in a shard whose turn it is not.
		b.slots.done("q", 5)
		b.store.put(5, laneOf(1), unixtime.MilliOf(time.Now()))
		after(1100 * time.Millisecond)
		b.wantServed(1)
	})
}

// A shard whose server is away takes what is due of the others none of its time.
func TestAShardThatIsAwayHidesNoOther(t *testing.T) {
	run(t, func(b *bed) {
		b.acquire(2, 5)
		synctest.Wait()
		b.look(func() {
			for _, sh := range b.s.shards {
				for i := range listedLanes/2 + 1 {
					sh.laneOf(laneOf(1, fmt.Sprint("q", i)))
				}
			}
			b.s.shards[2].lanesRead = false
		})
		b.store.set(func() { b.store.away = map[int]bool{2: true} })
		b.slots.done("q", 5)
		b.store.put(0, laneOf(1), unixtime.MilliOf(time.Now()))
		b.store.put(5, laneOf(1), unixtime.MilliOf(time.Now()))
		after(1100 * time.Millisecond)
		b.wantServed(1) // of the shard that is not listed in this period
		after(leaseTimeout)
		b.wantServed(2)
	})
}

// The lanes of a shard that is won are read at once, also while a server of other shards is away.
func TestANewShardIsReadWhileAServerIsAway(t *testing.T) {
	run(t, func(b *bed) {
		b.acquire(1)
		after(500 * time.Millisecond)
		b.store.set(func() { b.store.away = map[int]bool{1: true} })
		b.slots.done("q", 9)
		after(600 * time.Millisecond) // a rescan is under way
		b.store.put(2, laneOf(1), unixtime.MilliOf(time.Now()))
		b.acquire(2)
		won := time.Now()
		for b.slots.count() == 0 && time.Since(won) < 20*time.Second {
			after(10 * time.Millisecond)
		}
		if took := time.Since(won); took > 100*time.Millisecond {
			t.Errorf("what is due in a shard that was won is leased after %v", took)
		}
	})
}

func TestWantedLeasesAdaptToAnswers(t *testing.T) {
	const due, now = 1_000_000, 1_060_000
	for _, c := range []struct {
		name             string
		want, asked, got int
		next             unixtime.Milli
		expect           int
	}{
		{"the rest of a minute as dense", 4, 4, 4, due + 4000, 4 * 56 / 4},
		{"no less than twice as much", 8, 8, 8, due + 50_000, 16},
		{"no more than it can be", 1, 1, 1, due + 1, maxGrowth},
		{"many of one instant", 1, 1, 1, due, maxGrowth},
		{"older than the one before", 1, 1, 1, 0, maxGrowth},
		{"no more than a call takes", 100, 100, 100, due, job.MaxLeasesPerCall},
		{"few slots teach little", 150, 2, 2, due, 150},
		{"all of it", 3, 3, 3, now + 1, 4},
		{"it never has more", 3, 3, 3, job.NeverMS, 4},
		{"less than all", 8, 8, 5, now + 1, 6},
		{"nothing", 8, 8, 0, now + 1, 4},
		{"nothing once more", 1, 1, 0, now + 1, 1},
		{"less than all, for want of slots", 8, 8, 2, due, 4},
	} {
		l := &lane{due: due, wantedLeases: c.want}
		if l.adaptWanted(c.asked, c.got, c.next, now); l.wantedLeases != c.expect {
			t.Errorf("%s: %d are asked for, want %d", c.name, l.wantedLeases, c.expect)
		}
	}
}
