package job

import (
	"math/bits"
	"slices"
)

// startBackfill adds a range of past nominal times to run.
func (t *transition) startBackfill(ev StartBackfill) Answer {
	before := t.stateBefore()
	b := ev.Backfill
	known := slices.Contains(t.Recent, "b-"+b.ID) ||
		slices.ContainsFunc(t.Backfills, func(o Backfill) bool { return o.ID == b.ID })
	switch {
	case t.Deleting:
		return t.answerUnchanged(NoSuchRun, before)
	case known:
		return t.answerUnchanged(Duplicate, before)
	case len(t.Backfills) >= MaxBackfills || t.findFreeSlot() < 0:
		return t.answerUnchanged(TooMany, before)
	}
	t.rememberRequest("b-" + b.ID)
	b.Concurrency, b.Slots = max(b.Concurrency, 1), 0
	t.Backfills = append(t.Backfills, b)
	t.addNotice(Notice{Kind: BackfillStarted, Reason: b.ID})
	t.planNextBackfill()
	return t.finishDecision(Applied)
}

// stopBackfill forgets a backfill; runs of it that have not begun end when they
// arrive.
func (t *transition) stopBackfill(ev StopBackfill) Answer {
	before := t.stateBefore()
	n := len(t.Backfills)
	t.Backfills = slices.DeleteFunc(t.Backfills, func(b Backfill) bool { return b.ID == ev.ID })
	if len(t.Backfills) == n {
		return t.answerUnchanged(NoSuchRun, before)
	}
	t.addNotice(Notice{Kind: BackfillDone, Reason: ev.ID})
	return t.finishDecision(Applied)
}

// planNextBackfill makes the next run of the first backfill that may have one, and
// drops those that are done.
func (t *transition) planNextBackfill() {
	past := backfillTimes{c: t.c}
	for i := range t.Backfills {
		b := &t.Backfills[i]
		if bits.OnesCount64(b.Slots) >= int(b.Concurrency) || t.spawn != nil || t.findFreeSlot() < 0 {
			continue
		}
		nominal, ok := past.nextAfter(b.NextMS, nil)
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
			t.addNotice(Notice{Kind: BackfillDone, Reason: b.ID})
		}
		return done
	})
}

// findBackfill finds the backfill that a run belongs to; nil if it has been stopped.
func (s *State) findBackfill(id string) *Backfill {
	for i := range s.Backfills {
		if s.Backfills[i].ID == id {
			return &s.Backfills[i]
		}
	}
	return nil
}

// redriveRun tries the dead run of a one-time job again.
func (t *transition) redriveRun(ev Redrive) Answer {
	before := t.stateBefore()
	if !t.isDeadSince(ev.FinishedMS) {
		return t.answerUnchanged(NotDead, before)
	}
	t.LastNominal = 0
	t.planScheduledRun(planInput{}, "")
	if t.Region == RegionDone {
		return t.answerUnchanged(NotDead, before)
	}
	t.Due, t.Source, t.Recovery = max(t.now, t.Nominal), DelayRedrive, true
	t.placeRun()
	t.addNotice(Notice{Kind: RunRedriven})
	return t.finishDecision(Applied)
}
