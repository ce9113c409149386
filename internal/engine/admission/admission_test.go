package admission

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

var errTest = errors.New("refused")

func TestPlainRunsGoStraightThrough(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a"), recurring("b"))
		leases := b.lease("ns/a", "ns/b")
		r := b.a.Reserve("ns", "q", 2)
		r.Deliver(leases)
		b.wantGot("ns/a", "ns/b") // before anything else could run
		for _, call := range []string{"acquire", "read", "rate"} {
			if n := b.limits.count(call); n != 0 {
				t.Errorf("%d calls of %s", n, call)
			}
		}
		b.wantEvents("ns/a")
	})
}

func TestGatedRunsHoldUpNoOthers(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a"), recurring("b", locks("k")))
		b.limits.set(func() { b.limits.hang["acquire"] = true })
		leases := b.lease("ns/b", "ns/a")
		b.a.Reserve("ns", "q", 2).Deliver(leases)
		b.wantGot("ns/a")
	})
}

// What came in advance passes its gates when it is due, each by itself.
func TestGatesAreAskedWhenRunsAreDue(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b", locks("l")), recurring("c", locks("m")))
		leases := b.lease("ns/a", "ns/b", "ns/c")
		leases[1].StartAt = time.Now().Add(20 * time.Millisecond)
		leases[2].StartAt = time.Now().Add(30 * time.Millisecond)
		r := b.a.Reserve("ns", "q", 3)
		if !r.Advance() || !b.a.MayAdvance("ns", "q") {
			t.Error("the slots do not say that they are for what is not due")
		}
		r.Deliver(leases)
		for _, step := range []struct {
			wait time.Duration
			want []job.RecordID
		}{
			{0, []job.RecordID{"ns/a"}}, {19 * time.Millisecond, []job.RecordID{"ns/a"}}, {time.Millisecond, []job.RecordID{"ns/a", "ns/b"}},
			{9 * time.Millisecond, []job.RecordID{"ns/a", "ns/b"}}, {time.Millisecond, []job.RecordID{"ns/a", "ns/b", "ns/c"}},
		} {
			after(step.wait)
			b.wantGot(step.want...)
			if n := b.limits.count("acquire"); n != len(step.want) {
				t.Errorf("%d runs are delivered, and locks were asked %d times", len(step.want), n)
			}
		}
	})
}

func TestMutex(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b", locks("k")), recurring("c", locks("k")))
		first := b.deliver("ns/a")
		after(time.Millisecond)
		b.deliver("ns/b")
		after(time.Millisecond)
		b.deliver("ns/c")
		b.wantGot("ns/a")
		b.wantHolders("lock/ns/k", idOf(first[0]))
		b.wantHeld("ns/b", job.HeldLock, "k", "a")
		if d := dueIn(b.store.state("ns/b")); d < pollLock-time.Second/10 || d > 2*pollLock {
			t.Errorf("looks again after %v", d)
		}
		if s := b.store.state("ns/b"); s.Attempt != 0 || s.Failures != 0 || s.Unacked != 0 {
			t.Errorf("waiting was counted: %+v", s)
		}
		b.end("ns/a", success)
		if d := dueIn(b.store.state("ns/b")); d > 0 {
			t.Errorf("first waiter is due in %v, want woken", d)
		}
		if d := dueIn(b.store.state("ns/c")); d <= 0 {
			t.Error("second waiter is woken as well")
		}
		b.deliver("ns/b")
		b.wantGot("ns/a", "ns/b")
	})
}

func TestNamespacesHaveLocksOfTheirOwn(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b", locks("k"), func(d *job.Definition) { d.Namespace = "other" }))
		first, second := b.deliver("ns/a"), b.lease("other/b")
		b.a.Reserve("other", "q", 1).Deliver(second)
		after(time.Millisecond)
		b.wantGot("ns/a", "other/b")
		b.wantHolders("lock/ns/k", idOf(first[0]))
		b.wantHolders("lock/other/k", idOf(second[0]))
	})
}

func TestDeniedRunKeepsNothing(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("y")), recurring("b", locks("z", "x", "y")))
		b.deliver("ns/a")
		b.deliver("ns/b")
		b.wantGot("ns/a")
		b.wantHeld("ns/b", job.HeldLock, "y", "a")
		b.wantHolders("lock/ns/x")
		b.wantHolders("lock/ns/z")
		if n := b.limits.count("acquire"); n != 3 { // a: y; b: x, y
			t.Errorf("%d calls, want one for each lock up to the one denied", n)
		}
	})
}

// A wake that comes before it is stored that the run waits is repeated; one for a
// run that waits no more goes to the next in line.
func TestWakes(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b", locks("k")), recurring("c", locks("k")))
		b.deliver("ns/a")
		b.store.set(func() {
			b.store.delay = func(c job.Change) time.Duration {
				switch c.Input.(type) {
				case job.HoldBack:
					return 10 * time.Millisecond
				case job.Wake:
					return 2 * time.Millisecond
				}
				return 0
			}
		})
		b.deliver("ns/b")
		b.end("ns/a", success)
		after(50 * time.Millisecond)
		if s := b.store.state("ns/b"); s.Region != job.RegionDue || dueIn(s) > 0 {
			t.Errorf("not woken: %v in %v", s.Region, dueIn(s))
		}

		b.deliver("ns/b")
		after(time.Millisecond)
		b.put(recurring("gone", locks("k")))
		b.deliver("ns/gone")
		after(20 * time.Millisecond)
		b.deliver("ns/c")
		after(20 * time.Millisecond)
		b.wantHeld("ns/c", job.HeldLock, "k", "b")
		b.store.set(func() { delete(b.store.records, "ns/gone") })
		b.end("ns/b", success)
		after(20 * time.Millisecond)
		if d := dueIn(b.store.state("ns/c")); d > 0 {
			t.Errorf("the next in line is due in %v, want woken", d)
		}
	})
}

func TestRedisAwayGivesRunsBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		gate   func(*job.Definition)
		during func(b *bed)
	}{
		{"units", locks("k"), func(b *bed) { b.limits.down["acquire"] = true }},
		{"units hang", locks("k"), func(b *bed) { b.limits.hang["acquire"] = true }},
		{"target", target("host"), func(b *bed) { b.limits.down["read"] = true }},
		{"ledger", overlap(job.OverlapAllowAll), func(b *bed) { b.store.refuse["ns/a"] = errTest }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.put(recurring("a", tt.gate))
				before := b.store.state("ns/a")
				b.limits.set(func() { tt.during(b) })
				begun := time.Now()
				b.deliver("ns/a")
				after(ttl / 2)
				b.wantGot()
				if got := b.slots.list(&b.slots.returned); !slices.Equal(got, []string{"ns/a"}) {
					t.Errorf("returned %q", got)
				}
				if took := b.slots.at[0].Sub(begun); took > ttl/5 {
					t.Errorf("its slot was free after %v", took)
				}
				s := b.store.state("ns/a")
				if s.Region != job.RegionDue || s.Attempt != 0 || s.Unacked != before.Unacked || s.Due != before.Due {
					t.Errorf("after: %+v", s)
				}
				b.wantHolders("lock/ns/k")
			})
		})
	}
}

func TestQueueConcurrency(t *testing.T) {
	run(t, func(b *bed) {
		b.settings(job.QueueSettings{MaxConcurrency: 2})
		b.put(recurring("a"), recurring("b"), recurring("c"))
		if g := b.take(5); g.N != 2 || g.Again <= 0 || g.Limit != job.LimitConcurrency {
			t.Errorf("grant %+v, want room for 2", g)
		}
		if g := b.take(5); g.N != 0 || g.Limit != job.LimitConcurrency {
			t.Errorf("grant %+v of room that is promised", g)
		}
		b.a.ReturnStarts([]job.QueueRequest{{Queue: queueQ, N: 1}})
		after(roomPause)
		if g := b.take(5); g.N != 1 {
			t.Errorf("grant %+v, want what was given back", g)
		}
		b.deliver("ns/a", "ns/b", "ns/c")
		b.wantGot("ns/a", "ns/b")
		b.wantHeld("ns/c", job.HeldQueue, "q", "a")
		if g := b.take(1); g.N != 0 || g.Again <= 0 {
			t.Errorf("grant %+v of a full queue", g)
		}
		calls := b.limits.count("rooms")
		if g := b.take(1); g.Limit != job.LimitConcurrency || b.limits.count("rooms") != calls {
			t.Errorf("a queue that rests is asked for again, or forgets why: %+v", g)
		}
		b.rooms = nil
		b.end("ns/a", success)
		if !slices.Contains(b.rooms, "ns/q") {
			t.Error("nobody is told of the room")
		}
		if g := b.take(1); g.N != 1 || g.Limit != job.NoLimit {
			t.Errorf("grant %+v after a run ended", g)
		}
		if d := dueIn(b.store.state("ns/c")); d > 3*roomPause/2 {
			t.Errorf("the run that was one too many is due in %v", d)
		}
	})
}

func TestQueueRate(t *testing.T) {
	run(t, func(b *bed) {
		b.settings(job.QueueSettings{Rate: 10, Burst: 3})
		if !b.a.Limited("ns", "q") || b.a.Limited("ns", "other") {
			t.Error("Limited is wrong")
		}
		if g := b.take(5); g.N != 3 || g.Again != 100*time.Millisecond || g.Limit != job.LimitRate {
			t.Errorf("grant %+v, want the burst", g)
		}
		b.a.ReturnStarts([]job.QueueRequest{{Queue: queueQ, N: 2}})
		synctest.Wait()
		if g := b.take(5); g.N != 2 {
			t.Errorf("grant %+v, want what was given back", g)
		}
		if g := b.take(5); g.N != 0 {
			t.Errorf("grant %+v, want none", g)
		}
		after(200 * time.Millisecond)
		if g := b.take(5); g.N != 2 {
			t.Errorf("grant %+v after 200 ms at 10 a second", g)
		}
		// A run that a gate holds back has not started.
		b.put(recurring("a", locks("k")), recurring("b", locks("k")))
		b.deliver("ns/a", "ns/b")
		after(20 * time.Millisecond)
		if g := b.take(1); g.N != 1 {
			t.Errorf("grant %+v, want the start of the run that was held back", g)
		}
	})
}

// While Redis cannot be asked about a queue it is asked ever more seldom, as others may wait
// for the answer.
func TestRunsWaitWhileLimitsFail(t *testing.T) {
	for call, limits := range map[string]job.QueueSettings{"rate": {Rate: 100, Burst: 50}, "rooms": {MaxConcurrency: 100}} {
		run(t, func(b *bed) {
			b.settings(limits)
			for _, until := range []time.Duration{1600, 200} {
				b.limits.set(func() { b.limits.down[call] = true })
				for want := errorPause; want <= until*time.Millisecond; want *= 2 {
					if g := b.take(5); g.N != 0 || g.Again != want || g.Limit != job.NoLimit {
						t.Errorf("%s: grant %+v, want none for %v", call, g, want)
					}
					calls := b.limits.count(call)
					after(want / 2)
					if g := b.take(5); g.N != 0 || g.Again != want/2 || b.limits.count(call) != calls {
						t.Errorf("%s: it is asked after half of the pause, %+v", call, g)
					}
					after(want / 2)
				}
				if until > 1000 {
					if g := b.take(5); g.Again != 1600*time.Millisecond {
						t.Errorf("%s: grant %+v, the pause grows for ever", call, g)
					}
					after(1600 * time.Millisecond)
				}
				b.limits.set(func() { b.limits.down[call] = false })
				if g := b.take(5); g.N != 5 {
					t.Errorf("%s: grant %+v when it can be asked again", call, g)
				}
			}
		})
	}
}

// Until the settings are known, nothing may start.
func TestUnknownSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := newFakeLimits()
		limits.down["settings"] = true
		b := newBed(t, limits)
		defer b.a.Stop()
		synctest.Wait()
		if !b.a.Limited("ns", "q") {
			t.Error("not limited")
		}
		if g := b.take(1); g.N != 0 || g.Again <= 0 || g.Limit != job.NoLimit {
			t.Errorf("grant %+v", g)
		}
		limits.set(func() { limits.down["settings"] = false })
		b.a.SettingsChanged()
		synctest.Wait()
		if b.a.Limited("ns", "q") {
			t.Error("limited")
		}
		limits.set(func() { limits.settings[queueQ] = job.QueueSettings{Rate: 1}; limits.down["settings"] = true })
		after(1500 * time.Millisecond)
		limits.set(func() { limits.down["settings"] = false })
		after(time.Second)
		if !b.a.Limited("ns", "q") {
			t.Error("what changed is not read within a second")
		}
	})
}

// TestChangesOfSettingsAreReadTogether: who changes settings all the time does not have a node
// read all of them all the time.
func TestChangesOfSettingsAreReadTogether(t *testing.T) {
	run(t, func(b *bed) {
		b.limits.set(func() { b.limits.late = 20 * time.Millisecond })
		before := b.limits.count("settings")
		for range 2000 {
			b.a.SettingsChanged()
			after(time.Millisecond)
		}
		if n := b.limits.count("settings") - before; n < 5 || n > 15 {
			t.Errorf("in 2 s settings were read %d times, want about every 200 ms", n)
		}
		b.limits.set(func() { b.limits.settings[queueQ] = job.QueueSettings{Paused: true} })
		b.a.SettingsChanged()
		after(time.Second / 2)
		if !b.a.Paused(queueQ) || !b.a.QueueSettings()[queueQ].Paused {
			t.Error("the last change is not read")
		}
	})
}

func TestPausedQueue(t *testing.T) {
	run(t, func(b *bed) {
		b.settings(job.QueueSettings{Paused: true, Rate: 10, Burst: 3, MaxConcurrency: 5})
		if !b.a.Limited("ns", "q") || b.a.Limited("ns", "other") || !b.a.Paused(queueQ) || b.a.Paused(job.QueueKey{Namespace: "ns", Queue: "other"}) {
			t.Error("another queue is paused, or this one is not")
		}
		for range 3 {
			if g := b.take(5); g.N != 0 || g.Again != pausedPause || g.Limit != job.NoLimit {
				t.Errorf("grant %+v of a paused queue", g)
			}
		}
		if rates, rooms := b.limits.count("rate"), b.limits.count("rooms"); rates+rooms != 0 {
			t.Errorf("Redis is asked %d times what a paused queue may start", rates+rooms)
		}
		other := job.QueueRequest{Queue: job.QueueKey{Namespace: "ns", Queue: "other"}, N: 2}
		grants := b.a.TakeStarts(t.Context(), []job.QueueRequest{{Queue: queueQ, N: 1}, other})
		if grants[0].N != 0 || grants[1].N != 2 {
			t.Errorf("grants %+v: one is paused, the other is not", grants)
		}
		// What was leased before is delivered.
		b.put(recurring("a"))
		b.deliver("ns/a")
		b.wantGot("ns/a")
		// The last settings count while they cannot be read.
		b.limits.set(func() { b.limits.down["settings"] = true; b.limits.settings[queueQ] = job.QueueSettings{} })
		after(5 * time.Second)
		if g := b.take(1); g.N != 0 {
			t.Errorf("grant %+v while settings cannot be read", g)
		}
		b.limits.set(func() { b.limits.down["settings"] = false })
		b.rooms = nil
		b.settings(job.QueueSettings{Paused: true, Rate: 10, Burst: 3})
		b.settings(job.QueueSettings{Rate: 10, Burst: 3})
		if !slices.Contains(b.rooms, "ns/q") {
			t.Error("nobody is told that the queue goes on")
		}
		if g := b.take(5); g.N != 3 || g.Limit != job.LimitRate {
			t.Errorf("grant %+v of a queue that goes on", g)
		}
		if want := []string{"ns/q true", "ns/q false"}; !slices.Equal(b.pauses, want) {
			t.Errorf("told of pauses %q, want %q", b.pauses, want)
		}
	})
}

func TestRecoveryIsARamp(t *testing.T) {
	run(t, func(b *bed) {
		b.settings(job.QueueSettings{RecoveryRate: 10})
		var records []job.RecordID
		for i := range 5 {
			d := recurring(fmt.Sprint(i))
			b.put(d)
			b.store.set(func() { b.store.records[d.Record()].State.Recovery = true })
			records = append(records, d.Record())
		}
		begun := time.Now()
		b.deliver(records...)
		b.wantGot("ns/0")
		for i, r := range records[1:] {
			s := b.store.state(r)
			want := unixtime.MilliOf(begun.Add(time.Duration(i+1) * 100 * time.Millisecond))
			if s.Due != want || !s.Paced || s.Held.Reason != job.HeldPace {
				t.Errorf("%s: due %+d ms, held %+v, paced %v", r, int64(s.Due-want), s.Held, s.Paced)
			}
		}
		calls := b.limits.count("rate")
		b.deliver(records[1:]...) // their turn has come, and is not asked for again
		b.wantGot(records...)
		if b.limits.count("rate") != calls {
			t.Error("a run that had its turn takes another one")
		}
	})
}

func TestStopReturnsGatedRuns(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b", locks("k")), recurring("c"))
		b.deliver("ns/a")
		b.a.Ended(job.Ending{Record: "ns/a", Token: b.store.state("ns/a").Token, Over: true})
		b.a.Stop()
		b.wantHolders("lock/ns/k")
		b.deliver("ns/b", "ns/c")
		b.wantGot("ns/a", "ns/c")
		if got := b.slots.list(&b.slots.returned); !slices.Equal(got, []string{"ns/b"}) {
			t.Errorf("returned %q", got)
		}
	})
}

func (b *bed) settings(s job.QueueSettings) {
	b.limits.set(func() { b.limits.settings[queueQ] = s })
	b.a.SettingsChanged()
	synctest.Wait()
}

func (b *bed) take(n int) job.QueueGrant {
	return b.a.TakeStarts(b.t.Context(), []job.QueueRequest{{Queue: queueQ, N: n}})[0]
}

// BenchmarkPlain delivers batches of 100 runs without gates.
func BenchmarkPlain(b *testing.B) {
	for _, gated := range []bool{false, true} {
		b.Run(map[bool]string{false: "direct", true: "through"}[gated], func(b *testing.B) {
			a, err := New(Options{
				Store: &fakeStore{}, Limits: newFakeLimits(), Ledger: &fakeStore{}, Slots: nullSlots{}, Canceller: &fakeSlots{},
			})
			if err != nil {
				b.Fatal(err)
			}
			defer a.Stop()
			for a.settings.Load() == nil {
				a.SettingsChanged()
			}
			leases := make([]job.Leased, 100)
			for i := range leases {
				d := recurring(fmt.Sprint(i))
				leases[i].Known = &job.Record{Definition: &d}
				leases[i].Record, leases[i].Known.State.Token = leases[i].Known.Definition.Record(), uint64(i)
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n += len(leases) {
				var r slots.Reservation = nullSlots{}
				if gated {
					r = a.Reserve("ns", "q", len(leases))
				}
				r.Deliver(leases)
			}
		})
	}
}

type nullSlots struct{}

func (nullSlots) Reserve(string, string, int) slots.Reservation        { return nullSlots{} }
func (nullSlots) ReserveWaiting(string, string, int) slots.Reservation { return nullSlots{} }
func (nullSlots) MayAdvance(string, string) bool                       { return false }
func (nullSlots) Advance() bool                                        { return false }
func (nullSlots) ReturnLeases([]job.Leased)                            {}
func (nullSlots) AbandonAttempt(job.RecordID, uint64) bool             { return false }
func (nullSlots) Count() int                                           { return 0 }
func (nullSlots) Split(int) slots.Reservation                          { return nullSlots{} }
func (nullSlots) Deliver([]job.Leased)                                 {}

// Of the slots that were reserved those for which nothing was leased are free at once, while
// what was leased is at its gates, for as long as the server of a lock is away.
func TestSlotsThatNothingWasLeasedForAreFreeAtOnce(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("b", locks("k")))
		b.limits.set(func() { b.limits.hang["acquire"] = true })
		leases := b.lease("ns/b")
		b.a.Reserve("ns", "q", 100).Deliver(leases)
		synctest.Wait()
		b.slots.mu.Lock()
		open := b.slots.open
		b.slots.mu.Unlock()
		if open != 1 {
			t.Errorf("%d slots are taken while 1 run waits for an answer about its lock", open)
		}
	})
}

// Room that there is since Redis has answered is asked for at once.
func TestRoomThatComesWithTheAnswerIsNotMissed(t *testing.T) {
	run(t, func(b *bed) {
		b.settings(job.QueueSettings{MaxConcurrency: 1})
		b.put(recurring("a"))
		b.deliver("ns/a")
		b.wantGot("ns/a")
		b.limits.set(func() { b.limits.counted = func() { b.a.reportRoom(queueQ) } })
		if g := b.take(1); g.N != 0 || g.Limit != job.LimitConcurrency {
			t.Fatalf("grant %+v of a full queue", g)
		}
		b.limits.set(func() { b.limits.counted = nil })
		calls := b.limits.count("rooms")
		if b.take(1); b.limits.count("rooms") != calls+1 {
			t.Error("the queue rests although somebody said that it has room")
		}
	})
}

// TestAWaiterComesWhenTheUnitOfADeadHolderLapses: no node gives it back or wakes the first in line, which comes
// for it by itself. Others come later, as usual.
func TestAWaiterComesWhenTheUnitOfADeadHolderLapses(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b", locks("k")))
		b.limits.set(func() {
			b.limits.units[job.LockName("ns", "k")] = map[string]time.Time{"dead": time.Now().Add(700 * time.Millisecond)}
		})
		b.deliver("ns/a")
		b.deliver("ns/b")
		if d := dueIn(b.store.state("ns/a")); d < 700*time.Millisecond || d > 700*time.Millisecond+2*lapseSlack {
			t.Errorf("the first in line comes in %v", d)
		}
		if d := dueIn(b.store.state("ns/b")); d < pollLock {
			t.Errorf("the second in line comes in %v", d)
		}
		after(700*time.Millisecond + lapseSlack)
		b.deliver("ns/a")
		b.wantGot("ns/a")
	})
}

// TestLostAttemptReleasesItsUnits: the holder of its shard finds that its lease has ended; its node is gone,
// and no other node knows of it.
func TestLostAttemptReleasesItsUnits(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b", locks("k")))
		lost := b.lease("ns/a")[0]
		b.limits.set(func() {
			b.limits.units[job.LockName("ns", "k")] = map[string]time.Time{idOf(lost): time.Now().Add(20 * time.Second)}
		})
		b.deliver("ns/b")
		b.wantHeld("ns/b", job.HeldLock, "k", "a")
		d := b.definition("ns/a")
		b.a.Ended(job.Ending{Record: "ns/a", Token: lost.Known.State.Token, Over: true, Definition: &d})
		synctest.Wait()
		if due := dueIn(b.store.state("ns/b")); due > 0 {
			t.Errorf("the waiter is not woken: due in %v", due)
		}
		b.deliver("ns/b")
		b.wantGot("ns/b")
	})
}

// TestPauseEndsByItself: a node resumes a queue within about a second after the end of its pause, keeps its limits, and
// stores that. While it cannot be stored the pause goes on; another pause meanwhile is not ended.
func TestPauseEndsByItself(t *testing.T) {
	run(t, func(b *bed) {
		until := unixtime.MilliOf(time.Now().Add(time.Minute))
		b.settings(job.QueueSettings{Paused: true, PauseUntilMS: until, Rate: 10})
		after(58 * time.Second)
		if !b.a.Paused(queueQ) {
			t.Fatal("the pause ended early")
		}
		b.limits.set(func() { b.limits.down["swap settings"] = true })
		after(5 * time.Second)
		if !b.a.Paused(queueQ) {
			t.Error("the queue goes on although it is stored as paused")
		}
		b.limits.set(func() { b.limits.down["swap settings"] = false })
		after(2 * time.Second)
		b.limits.set(func() {
			if s := b.limits.settings[queueQ]; s != (job.QueueSettings{Rate: 10}) {
				t.Errorf("stored are %+v", s)
			}
		})
		if b.a.Paused(queueQ) || !slices.Equal(b.pauses, []string{"ns/q true", "ns/q false"}) {
			t.Errorf("paused %v, observed %q", b.a.Paused(queueQ), b.pauses)
		}
		// A person pauses it again, without an end.
		b.settings(job.QueueSettings{Paused: true, Rate: 10})
		after(time.Hour)
		if !b.a.Paused(queueQ) {
			t.Error("a pause without an end has ended")
		}
	})
}
