package job

// ForgiveLoss says that the worker process which had the lease of this token lives, and that
// its handler has ended: the lease was lost because the worker had no node, or its node no
// store. That does not count against the run, whose payload has killed nobody.
//
// The event may come before the loss itself, which it then stands for; after the next attempt
// was leased, or lost in its turn, when it is too late; and any number of times. A run that
// the loss has quarantined stays so.
type ForgiveLoss struct{ Token uint64 }

func (ForgiveLoss) event() {}

// Loss is the last lost attempt of a run, with the counts from before it.
type Loss struct {
	Token           uint64 // 0: none
	Losses, Unacked uint32
}

// noteLoss remembers the counts from before a loss.
func (s *State) noteLoss(token uint64) {
	s.LastLoss = Loss{Token: token, Losses: s.Losses, Unacked: s.Unacked}
}

// lossStands reports whether LastLoss is of the current run. A version that does not know the
// field leaves it where it is when the run ends.
func (s *State) lossStands() bool { return s.LastLoss.Token > s.SettledToken }

// lossCounts reports whether LastLoss is among the losses that are counted.
func (s *State) lossCounts() bool {
	return s.lossStands() && s.Losses+s.Unacked == s.LastLoss.Losses+s.LastLoss.Unacked+1
}

// forgiveLoss takes the loss of an attempt out of the count of those in a row.
func (t *transition) forgiveLoss(ev ForgiveLoss) Answer {
	switch {
	case ev.Token != 0 && t.Live() && ev.Token == t.Token:
		return t.loseUncounted(ev.Token)
	case ev.Token == 0 || ev.Token != t.LastLoss.Token:
		return t.unchanged(Stale, t.before())
	case !t.lossCounts():
		return t.unchanged(Duplicate, t.before())
	}
	t.Losses, t.Unacked = t.LastLoss.Losses, t.LastLoss.Unacked
	if t.standsApart() {
		t.Due = t.now
	}
	return t.decision(Applied)
}

// loseUncounted ends a live lease that its worker has lost. The run starts again at once.
func (t *transition) loseUncounted(token uint64) Answer {
	t.noteLoss(token)
	t.Lost++
	t.LastOutcome, t.LastFinished = OutcomeLost, t.latest.MS
	t.notice(Notice{Kind: AttemptLost, Attempt: t.Attempt + 1, Count: int64(t.Losses)})
	if t.Cancel || t.Deleting {
		run := t.run(Settle{Token: token}, t.Attempt)
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	} else {
		t.again()
	}
	return t.decision(Applied)
}

// standsApart reports whether the run is held by [transition.standApart] and has no reason to
// be any more.
func (t *transition) standsApart() bool {
	return t.Region == RegionDue && t.Held.Reason == HeldPace && t.Held.Key == "" && !t.Recovery && t.Due > t.now
}
