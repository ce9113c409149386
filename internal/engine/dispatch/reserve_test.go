package dispatch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestReserveTakesExactSlotsOfTheLeastLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, small := b.connect("small", 2, 1)
		_, large := b.connect("large", 8, 1)
		b.wantFree(10)

		b.deliver("a1", "a2", "a3", "a4", "a5")
		b.wantFree(5)
		if s, l := len(small.took()), len(large.took()); s != 1 || l != 4 {
			t.Errorf("small got %d and large %d leases, want 1 and 4", s, l)
		}
		r := b.d.Reserve("ns", "q", 100)
		if r.Count() != 5 {
			t.Errorf("reserved %d, want the 5 that are left", r.Count())
		}
		if again := b.d.Reserve("ns", "q", 1); again.Count() != 0 {
			t.Errorf("reserved a slot twice")
		}
		for _, q := range []string{"other", ""} {
			if n := b.d.Reserve("ns", q, 1).Count(); n != 0 {
				t.Errorf("queue %q: reserved %d", q, n)
			}
		}
		before := b.demands.Load()
		r.Deliver([]job.Leased{b.lease("a6")})
		b.wantFree(4)
		if b.demands.Load() != before+1 {
			t.Errorf("slots that others wanted came free without a word")
		}
		r.Deliver(nil)
		b.wantFree(4)
	})
}

// If free slots were reported while others were reserved, those that come back are announced.
func TestUnusedReservedSlotsAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.connect("w", 4, 1)
		giveBack := func(r slots.Reservation, leases ...job.Leased) int64 {
			before := b.demands.Load()
			r.Deliver(leases)
			return b.demands.Load() - before
		}
		if n := giveBack(b.d.Reserve("ns", "q", 4)); n != 0 {
			t.Errorf("%d words of slots that nobody missed", n)
		}
		r := b.d.Reserve("ns", "q", 4)
		b.wantFree(0)
		if n := giveBack(r, b.lease("a")); n != 1 {
			t.Errorf("%d words of 3 slots that came back", n)
		}
		b.wantFree(3)
		if n := giveBack(b.d.Reserve("ns", "q", 3)); n != 0 {
			t.Errorf("%d words of slots that were told of", n)
		}
	})
}

// Leases that are not due yet are for workers that wait until they are, and only while
// slots of theirs are to spare.
func TestLeasesInAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 4, 1)
		if b.d.MayAdvance("ns", "q") || b.d.Reserve("ns", "q", 1).Advance() {
			t.Error("a worker that starts at once would get leases in advance")
		}
		early := b.lease("early")
		early.StartAt = time.Now().Add(10 * time.Millisecond)
		b.d.Reserve("ns", "q", 1).Deliver([]job.Leased{early})
		b.wantEvents("ReturnLease early") // never sent
		s.Close("gone", nil)

		s, out := b.connect("x", 4, 1)
		s.hello.StartsAfter = true
		if b.d.MayAdvance("ns", "other") || !b.d.MayAdvance("ns", "q") {
			t.Error("it depends on the queue's workers")
		}
		r := b.d.Reserve("ns", "q", 3)
		if !r.Advance() || !r.Split(1).Advance() {
			t.Error("one of four slots that stays free is not enough")
		}
		if last := b.d.Reserve("ns", "q", 1); last.Advance() {
			t.Error("none has to stay free")
		} else {
			last.Deliver(nil)
		}
		early = b.lease("soon")
		early.StartAt = time.Now().Add(10 * time.Millisecond)
		r.Deliver([]job.Leased{early})
		sent, _ := out.messages[0].(job.Assignments)
		if len(sent) != 1 || !sent[0].StartAt.Equal(early.StartAt) {
			t.Errorf("sent %+v", sent)
		}
		b.deliver("b")
		if !b.d.MayAdvance("ns", "q") {
			t.Error("half of the slots are taken, and nothing may come in advance")
		}
		b.deliver("c")
		if b.d.MayAdvance("ns", "q") {
			t.Error("more than half of the slots are taken, and something may come in advance")
		}
	})
}

// What a node believes of a shard's clock may be behind it. A run did not start before it
// was due.
func TestStartsAreNotBeforeRunsAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 4, 1)
		for _, report := range []func(id string){
			func(id string) { s.HandleStarted([]string{id}); s.HandleResults(ok(id)) },
			func(id string) { s.HandleResults(ok(id)) },
		} {
			l := b.lease("a")
			l.Known.State.Due += 8
			b.d.Reserve("ns", "q", 1).Deliver([]job.Leased{l})
			report(job.LeaseID(l.Record, l.Known.State.Token))
			synctest.Wait()
			changes := b.ledger.took()
			if got := changes[len(changes)-1].Input.(job.FinishAttempt).StartedMS; got != l.Known.State.Due {
				t.Errorf("it started %d ms after it was due", int64(got-l.Known.State.Due))
			}
		}
	})
}

func TestDeliverReturnsLeasesThatCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, _ := b.connect("w", 4, 1)
		r := b.d.Reserve("ns", "q", 2)
		s.Close("cut", nil)
		r.Deliver([]job.Leased{b.lease("closed")})
		b.wantEvents("ReturnLease closed")

		s, out := b.connect("w", 4, 2)
		r = b.d.Reserve("ns", "q", 2)
		s.Close("cut", nil)
		_, other := b.connect("v", 4, 1)
		r.Deliver([]job.Leased{b.lease("moved")})
		b.wantSent(other, "lease moved")
		b.wantEvents()

		// A process that slept through the lease, or nearly so, does not hand it on.
		for _, slept := range []time.Duration{23 * time.Second, 28 * time.Second, time.Minute} {
			late := b.lease("late")
			r = b.d.Reserve("ns", "q", 1)
			b.store.setClockSkew(slept)
			r.Deliver([]job.Leased{late})
			b.wantEvents("ReturnLease late")
			b.store.setClockSkew(0)
		}
		near := b.lease("near")
		r = b.d.Reserve("ns", "q", 1)
		b.store.setClockSkew(21 * time.Second)
		r.Deliver([]job.Leased{near})
		b.wantSent(other, "lease near")
		b.store.setClockSkew(0)

		other.mu.Lock()
		other.full = true
		other.mu.Unlock()
		r = b.d.Reserve("ns", "q", 1)
		r.Deliver([]job.Leased{b.lease("unsent")})
		b.wantEvents("ReturnLease unsent")
		if other.reason() == nil {
			t.Error("a stream that takes nothing goes on")
		}
		b.wantFree(0)
		b.wantSent(out)
	})
}

func TestDeliverIgnoresALeaseThatIsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, out := b.connect("w", 4, 1)
		l := b.lease("a")
		for range 2 {
			b.d.Reserve("ns", "q", 2).Deliver([]job.Leased{l})
		}
		b.wantSent(out, "lease a")
		b.wantFree(3)
		b.wantEvents()
	})
}

func TestDrainingWorkerGetsNoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s, out := b.connect("w", 4, 1)
		ids := b.deliver("a")
		s.HandleStarted(ids)
		s.HandleDraining()
		b.wantFree(0)
		s.HandleResults(ok(ids[0]))
		b.wantSent(out, "lease a", "ack a accepted")
		b.ledger.took()
		s.Close("done", nil)
		b.wantEvents()
		if w := b.d.Workers(); len(w) != 0 {
			t.Errorf("workers left: %v", w)
		}
	})
}

// TestSlotsProperty does random things in a random order: no session is ever
// over its slots, all counts agree, and when everything is reported everything
// is free.
func TestSlotsProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := &bench{t: t, store: &fakeStore{leases: map[job.RecordID]*fakeLease{}}, seen: &notices{}}
		var d *Dispatcher
		d, err := New(Options{Node: "n", Store: b.store, Ledger: syncLedger{}, Observer: b.seen})
		if err != nil {
			rt.Fatal(err)
		}
		b.d = d
		var (
			sessions []*Session
			streams  []*fakeStream
			live     [][]string
			jobs     int
		)
		pick := func() int { return rapid.IntRange(0, len(sessions)-1).Draw(rt, "session") }
		take := func(i int) []string {
			n := rapid.IntRange(0, len(live[i])).Draw(rt, "n")
			ids := slices.Clone(live[i][:n])
			return ids
		}
		rt.Repeat(map[string]func(*rapid.T){
			"connect": func(rt *rapid.T) {
				if len(sessions) >= 4 {
					return
				}
				s, out := b.connect(string(rune('a'+len(sessions))), rapid.IntRange(1, 5).Draw(rt, "slots"), 1)
				sessions, streams, live = append(sessions, s), append(streams, out), append(live, nil)
			},
			"deliver": func(rt *rapid.T) {
				r := d.Reserve("ns", "q", rapid.IntRange(0, 12).Draw(rt, "want"))
				var leases []job.Leased
				for range rapid.IntRange(0, r.Count()).Draw(rt, "leased") {
					jobs++
					leases = append(leases, b.lease("j"+string(rune('0'+jobs%10))+time.Duration(jobs).String()))
				}
				r.Deliver(leases)
				for i, out := range streams {
					for _, m := range out.messages {
						if batch, ok := m.(job.Assignments); ok {
							for _, l := range batch {
								live[i] = append(live[i], l.LeaseID)
							}
						}
					}
					out.messages = nil
				}
			},
			"start": func(rt *rapid.T) {
				if len(sessions) > 0 {
					i := pick()
					sessions[i].HandleStarted(take(i))
				}
			},
			"report": func(rt *rapid.T) {
				if len(sessions) == 0 {
					return
				}
				i := pick()
				ids := take(i)
				live[i] = live[i][len(ids):]
				for _, id := range ids {
					sessions[i].HandleResults(ok(id))
				}
			},
			"return": func(rt *rapid.T) {
				if len(sessions) == 0 {
					return
				}
				i := pick()
				ids := take(i)
				live[i] = live[i][len(ids):]
				sessions[i].HandleReturned(ids)
			},
			"reconnect": func(rt *rapid.T) {
				if len(sessions) == 0 {
					return
				}
				i := pick()
				old := sessions[i]
				if rapid.Bool().Draw(rt, "cut first") {
					old.Close("cut", nil)
				}
				live[i] = take(i)
				sessions[i], streams[i] = b.connect(old.hello.WorkerID, old.hello.Slots, old.hello.Epoch+1, live[i]...)
			},
			"": func(*rapid.T) {
				d.audit(t)
				for i, s := range sessions {
					if s.busySlots > s.hello.Slots || s.busySlots != len(live[i]) {
						rt.Fatalf("session %d: %d of %d slots busy, worker has %d", i, s.busySlots, s.hello.Slots, len(live[i]))
					}
				}
			},
		})
		total := 0
		for i, s := range sessions {
			for _, id := range live[i] {
				s.HandleResults(ok(id))
			}
			total += s.hello.Slots
		}
		if len(sessions) > 0 && b.free() != total {
			rt.Fatalf("free at the end: %d of %d", b.free(), total)
		}
	})
}

// syncLedger accepts everything before SubmitAll returns.
type syncLedger struct{}

func (syncLedger) SubmitAll(changes []job.Change, done func([]job.ChangeSummary)) {
	answers := make([]job.ChangeSummary, len(changes))
	for i := range answers {
		answers[i].Nth = i
	}
	done(answers)
}

// What was being leased when the drain began is given back, not sent to workers that
// may have closed their side, and the drain waits until that is stored.
func TestDrainWaitsForWhatIsBeingLeased(t *testing.T) {
	for name, deliver := range map[string]func(b *bench, r slots.Reservation){
		"leased": func(b *bench, r slots.Reservation) { r.Deliver([]job.Leased{b.lease("a")}) },
		"in two parts": func(b *bench, r slots.Reservation) {
			other := r.Split(1)
			r.Deliver(nil)
			synctest.Wait()
			other.Deliver([]job.Leased{b.lease("a")})
		},
		"nothing": func(_ *bench, r slots.Reservation) { r.Deliver(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				s, out := b.connect("w", 4, 1)
				r := b.d.Reserve("ns", "q", 2)
				done := make(chan error, 1)
				go func() { done <- b.d.Drain(t.Context()) }()
				time.Sleep(time.Second)
				s.Close("gone elsewhere", nil)
				time.Sleep(time.Second)
				select {
				case err := <-done:
					t.Fatalf("drained while leases may come: %v", err)
				default:
				}
				deliver(b, r)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if name == "nothing" {
					b.wantEvents()
				} else {
					b.wantEvents("ReturnLease a")
				}
				b.wantSent(out, "elsewhere")
			})
		})
	}
}

// A caller that waits for slots is notified of a slot whose lease came too late to be started: it is free.
func TestSlotOfALateLeaseIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.connect("w", 1, 1)
		r := b.d.Reserve("ns", "q", 1)
		if b.d.Reserve("ns", "q", 1).Count() != 0 { // own shards wait from here on
			t.Fatal("no slot was left")
		}
		freed := 0
		hear := func(slots []FreedSlots) {
			for _, x := range slots {
				freed += x.N
			}
		}
		b.freed.Store(&hear)
		l := b.lease("late")
		l.Known.IndexMS = unixtime.Milli(time.Now().UnixMilli() + 1)
		r.Deliver([]job.Leased{l})
		b.wantEvents("ReturnLease late")
		b.wantFree(1)
		if freed != 1 {
			t.Errorf("a slot is free again, and %d were told of", freed)
		}
	})
}

// Each reservation that others missed is announced when it comes back unused, whatever came back before it.
func TestEachUnusedReservationIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.connect("w", 2, 1)
		first, second := b.d.Reserve("ns", "q", 1), b.d.Reserve("ns", "q", 1)
		if b.d.Reserve("ns", "q", 1).Count() != 0 {
			t.Fatal("a slot was left")
		}
		freed := 0
		hear := func(slots []FreedSlots) {
			for _, x := range slots {
				freed += x.N
			}
		}
		b.freed.Store(&hear)
		first.Deliver(nil)
		second.Deliver(nil)
		if freed != 2 {
			t.Errorf("2 slots are free again, and %d were told of", freed)
		}
		b.d.Reserve("ns", "q", 2).Deliver(nil)
		if freed != 2 {
			t.Errorf("%d slots were told of that nobody had missed", freed-2)
		}
	})
}
