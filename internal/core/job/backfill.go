package job

import (
	"math/bits"
	"slices"
)

// startBackfill takes a range of past nominal times to be run.
func (t *transition) startBackfill(ev StartBackfill) Answer {
	before := t.before()
	b := ev.Backfill
	known := slices.Contains(t.Recent, "b-"+b.ID) ||
		slices.ContainsFunc(t.Backfills, func(o Backfill) bool { return o.ID == b.ID })
	switch {
	case t.Deleting:
		return t.unchanged(NoSuchRun, before)
	case known:
		return t.unchanged(Duplicate, before)
	case len(t.Backfills) >= MaxBackfills || t.freeSlot() < 0:
		return t.unchanged(TooMany, before)
	}
	t.remember("b-" + b.ID)
	b.Concurrency, b.Slots = max(b.Concurrency, 1), 0
	t.Backfills = append(t.Backfills, b)
	t.notice(Notice{Kind: BackfillStarted, Reason: b.ID})
	t.backfillNext()
	return t.decision(Applied)
}

// stopBackfill forgets a backfill; runs of it that have not begun end when they
// arrive.
func (t *transition) stopBackfill(ev StopBackfill) Answer {
	before := t.before()
	n := len(t.Backfills)
	t.Backfills = slices.DeleteFunc(t.Backfills, func(b Backfill) bool { return b.ID == ev.ID })
	if len(t.Backfills) == n {
		return t.unchanged(NoSuchRun, before)
	}
	t.notice(Notice{Kind: BackfillDone, Reason: ev.ID})
	return t.decision(Applied)
}

// backfillNext makes the next run of the first backfill that may have one, and
// drops those that are done.
func (t *transition) backfillNext() {
	past := pastTimes{c: t.c}
	for i := range t.Backfills {
		b := &t.Backfills[i]
		if bits.OnesCount64(b.Slots) >= int(b.Concurrency) || t.spawn != nil || t.freeSlot() < 0 {
			continue
		}
		nominal, ok := past.after(b.NextMS, nil)
		if !ok || nominal > b.ToMS {
			b.NextMS = b.ToMS
			continue
		}
		b.NextMS = nominal
		slot := t.addChild(State{
			Trigger: TriggerBackfill, ManualID: b.ID, Nominal: nominal, Due: max(t.now, nominal),
			Source: DelayBackfill, Recovery: true, Generation: t.c.Generation,
		}, false)
		b.Slots |= 1 << slot
	}
	t.Backfills = slices.DeleteFunc(t.Backfills, func(b Backfill) bool {
		done := b.NextMS >= b.ToMS && b.Slots == 0
		if done {
			t.notice(Notice{Kind: BackfillDone, Reason: b.ID})
		}
		return done
	})
}

// backfillOf finds the backfill that a run belongs to; nil if it has been stopped.
func (s *State) backfillOf(id string) *Backfill {
	for i := range s.Backfills {
		if s.Backfills[i].ID == id {
			return &s.Backfills[i]
		}
	}
	return nil
}

// redrive tries the dead run of a one-time job again.
func (t *transition) redrive() Answer {
	before := t.before()
	if t.Region != RegionDead || t.c.Recurring() {
		return t.unchanged(NotDead, before)
	}
	t.LastNominal = 0
	t.planSchedule(passed{}, "")
	if t.Region == RegionDone {
		return t.unchanged(NotDead, before)
	}
	t.Due, t.Source, t.Recovery = max(t.now, t.Nominal), DelayRedrive, true
	t.place()
	t.notice(Notice{Kind: RunRedriven})
	return t.decision(Applied)
}
