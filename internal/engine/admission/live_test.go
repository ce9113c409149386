package admission

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

func TestUnitsAreKeptWhileTheAttemptLives(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")))
		l := b.deliver("ns/a")[0]
		for range 10 {
			after(ttl / 2)
			b.wantHolders("lock/ns/k", idOf(l))
		}
		b.limits.set(func() { b.limits.down["keep"] = true })
		after(ttl / 3)
		b.limits.set(func() { b.limits.down["keep"] = false })
		after(ttl * 2 / 3)
		b.wantHolders("lock/ns/k", idOf(l))
		b.end("ns/a", success)
		b.wantHolders("lock/ns/k")
		if b.a.holdingAttempts.Load() != 0 {
			t.Error("the attempt is remembered")
		}
	})
}

func TestAttemptThatMayLiveOnKeepsItsUnits(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")))
		l := b.deliver("ns/a")[0]
		b.a.Ended(job.Ending{Record: "ns/a", Token: l.Known.State.Token})
		synctest.Wait()
		b.wantHolders("lock/ns/k", idOf(l))
		after(2 * ttl)
		b.wantHolders("lock/ns/k") // no attempt took it over
	})
}

func TestReleaseIsRepeated(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")))
		b.deliver("ns/a")
		b.limits.set(func() { b.limits.down["release"] = true })
		b.end("ns/a", success)
		b.wantHolders("lock/ns/k", idOf(b.slots.delivered[0]))
		b.limits.set(func() { b.limits.down["release"] = false })
		after(time.Second)
		b.wantHolders("lock/ns/k")
	})
}

func TestLostUnits(t *testing.T) {
	lapse := func(b *bed, name string, to ...string) {
		b.limits.set(func() {
			clear(b.limits.units[name])
			for _, holder := range to {
				b.limits.units[name][holder] = time.Now().Add(time.Hour)
			}
		})
		after(ttl / 2)
	}
	t.Run("free again", func(t *testing.T) {
		run(t, func(b *bed) {
			b.put(recurring("a", locks("k")))
			l := b.deliver("ns/a")[0]
			lapse(b, "lock/ns/k")
			b.wantHolders("lock/ns/k", idOf(l))
			if len(b.slots.abandoned) != 0 {
				t.Errorf("abandoned %q", b.slots.abandoned)
			}
		})
	})
	t.Run("lock taken", func(t *testing.T) {
		run(t, func(b *bed) {
			b.put(recurring("a", locks("k")))
			b.deliver("ns/a")
			lapse(b, "lock/ns/k", "7@ns/thief")
			if got := b.slots.list(&b.slots.abandoned); !slices.Equal(got, []string{"ns/a"}) {
				t.Errorf("abandoned %q", got)
			}
			b.end("ns/a", failure)
			b.wantHolders("lock/ns/k", "7@ns/thief")
		})
	})
	t.Run("place in the queue taken", func(t *testing.T) {
		run(t, func(b *bed) {
			b.settings(job.QueueSettings{MaxConcurrency: 1})
			b.put(recurring("a"))
			b.deliver("ns/a")
			lapse(b, "queue/ns/q", "7@ns/thief")
			if len(b.slots.abandoned) != 0 {
				t.Errorf("abandoned %q", b.slots.abandoned)
			}
		})
	})
}

func TestAdoption(t *testing.T) {
	run(t, func(b *bed) {
		d := recurring("a", locks("k", "new"))
		b.put(d)
		l := b.lease("ns/a")[0]
		// The node before had k; new came into the definition later, and is another's.
		b.limits.set(func() {
			b.limits.units["lock/ns/k"] = map[string]time.Time{idOf(l): time.Now().Add(ttl)}
			b.limits.units["lock/ns/new"] = map[string]time.Time{"7@ns/other": time.Now().Add(time.Hour)}
		})
		b.a.Adopted(l)
		after(2 * ttl)
		b.wantHolders("lock/ns/k", idOf(l))
		if len(b.slots.abandoned) != 0 {
			t.Errorf("abandoned %q", b.slots.abandoned)
		}
		b.end("ns/a", success)
		b.wantHolders("lock/ns/k")
		b.wantHolders("lock/ns/new", "7@ns/other")
	})
}

// What an adopted attempt is known to hold it may lose like any other. It is kept at once:
// the node before may have kept it for the last time long ago.
func TestAdoptedUnitsAreLostLikeOthers(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")))
		l := b.lease("ns/a")[0]
		hold := func(holder string, left time.Duration) {
			b.limits.set(func() {
				b.limits.units["lock/ns/k"] = map[string]time.Time{holder: time.Now().Add(left)}
			})
		}
		hold(idOf(l), 2*time.Second)
		b.a.Adopted(l)
		after(2 * ttl)
		b.wantHolders("lock/ns/k", idOf(l))
		hold("7@ns/thief", time.Hour)
		after(ttl / 2)
		if got := b.slots.list(&b.slots.abandoned); !slices.Equal(got, []string{"ns/a"}) {
			t.Errorf("abandoned %q", got)
		}
	})
}

// A lease that is given back at a node which never had it gives its units back, too.
func TestForeignReturn(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")))
		l := b.lease("ns/a")[0]
		b.limits.set(func() {
			b.limits.units["lock/ns/k"] = map[string]time.Time{idOf(l): time.Now().Add(ttl)}
		})
		d := b.definition("ns/a")
		b.a.Ended(job.Ending{Record: "ns/a", Token: l.Known.State.Token, Definition: &d})
		synctest.Wait()
		b.wantHolders("lock/ns/k", idOf(l))
		b.a.Ended(job.Ending{Record: "ns/a", Token: l.Known.State.Token, Definition: &d, Over: true})
		synctest.Wait()
		b.wantHolders("lock/ns/k")
	})
}

// A result that reaches a node which never had the attempt gives the units back.
func TestForeignResult(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", locks("k")), recurring("b"))
		l := b.lease("ns/a", "ns/b")
		b.limits.set(func() {
			b.limits.units["lock/ns/k"] = map[string]time.Time{idOf(l[0]): time.Now().Add(ttl)}
		})
		b.end("ns/a", success)
		b.wantHolders("lock/ns/k")
		calls := b.limits.count("release")
		b.end("ns/b", success)
		if b.limits.count("release") != calls {
			t.Error("a plain run's end costs a call")
		}
	})
}

func TestAllowAllSpawns(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", overlap(job.OverlapAllowAll), locks("k"), func(d *job.Definition) { d.Locks[0].Limit = 2 }))
		first := b.deliver("ns/a")[0]
		b.wantGot("ns/a#r0")
		b.wantHolders("lock/ns/k", idOf(first))
		if s := b.store.state("ns/a"); s.Region != job.RegionDue || s.Children != 1 {
			t.Errorf("parent: %v, children %b", s.Region, s.Children)
		}
		if l := b.slots.delivered[0]; l.Known.State.Token != first.Known.State.Token || l.Known.Definition.ID != "a" {
			t.Errorf("delivered %+v", l)
		}
		after(time.Hour)
		b.deliver("ns/a")
		b.wantGot("ns/a#r0", "ns/a#r1")
		after(time.Hour)
		b.deliver("ns/a")
		b.wantHeld("ns/a", job.HeldLock, "k", "a")
		if s := b.store.state("ns/a"); s.Children != 3 {
			t.Errorf("children %b: a run that is held is no child", s.Children)
		}
		b.end("ns/a#r0", success)
		if d := dueIn(b.store.state("ns/a")); d > 0 {
			t.Errorf("due in %v, want woken", d)
		}
	})
}

func TestCancelAndTerminateOthers(t *testing.T) {
	for _, tt := range []struct {
		policy job.Overlap
		got    []job.RecordID
		event  string
	}{
		{job.OverlapCancelOther, []job.RecordID{"ns/a#r0"}, "CancelRun"},
		{job.OverlapTerminateOther, []job.RecordID{"ns/a#r0", "ns/a#r1"}, "Terminate"},
	} {
		t.Run(tt.policy.String(), func(t *testing.T) {
			run(t, func(b *bed) {
				b.put(recurring("a", overlap(tt.policy)))
				b.deliver("ns/a")
				after(time.Hour)
				b.deliver("ns/a")
				b.wantGot(tt.got...)
				b.wantEvents("ns/a#r0", tt.event)
				if got := b.slots.list(&b.slots.cancelled); !slices.Equal(got, []string{"ns/a#r0"}) {
					t.Errorf("cancelled %q", got)
				}
				if tt.policy == job.OverlapCancelOther {
					b.wantHeld("ns/a", job.HeldOverlap, "", "")
					b.end("ns/a#r0", job.FinishAttempt{Outcome: job.OutcomeCancelled})
					b.deliver("ns/a")
					b.wantGot("ns/a#r0", "ns/a#r0")
				}
			})
		})
	}
}

func TestMisfireLeavesOut(t *testing.T) {
	run(t, func(b *bed) {
		b.put(recurring("a", func(d *job.Definition) { d.Misfire.Policy = job.MisfireSkip }))
		after(10 * time.Minute)
		b.deliver("ns/a")
		b.wantGot()
		b.wantEvents("ns/a", "RunLeased")
		if s := b.store.state("ns/a"); s.Region != job.RegionDue || s.Skipped != 1 || dueIn(s) <= 0 {
			t.Errorf("state %+v", s)
		}
	})
}
