package job

// ForgiveLoss reports that the worker process that had the lease of this token is alive, and its handler
// has ended. The lease was lost because the worker had no node, or its node no store. The loss
// then does not count against the run, because its payload did not crash a worker.
//
// The event may come before the loss itself, and then replaces it. It may be repeated any number
// of times. It has no effect after the next attempt was leased or lost. A run that the loss
// has quarantined stays quarantined.
type ForgiveLoss struct{ Token uint64 }

func (ForgiveLoss) isEvent() {}

// Loss is the last lost attempt of a run, with the counts from before it.
type Loss struct {
	Token           uint64 // 0: none
	Losses, Unacked uint32
}

// recordLoss remembers the counts from before a loss.
func (s *State) recordLoss(token uint64) {
	s.LastLoss = Loss{Token: token, Losses: s.Losses, Unacked: s.Unacked}
}

// isLossOfCurrentRun reports whether LastLoss is of the current run. A version that does not know the
// field leaves it where it is when the run ends.
func (s *State) isLossOfCurrentRun() bool { return s.LastLoss.Token > s.SettledToken }

// isLossCounted reports whether LastLoss is among the losses that are counted.
func (s *State) isLossCounted() bool {
	return s.isLossOfCurrentRun() && s.Losses+s.Unacked == s.LastLoss.Losses+s.LastLoss.Unacked+1
}

// forgiveLoss takes the loss of an attempt out of the count of those in a row.
func (t *transition) forgiveLoss(ev ForgiveLoss) Answer {
	switch {
	case ev.Token != 0 && t.Live() && ev.Token == t.Token:
		return t.endLeaseUncounted(ev.Token)
	case ev.Token == 0 || ev.Token != t.LastLoss.Token:
		return t.answerUnchanged(Stale, t.stateBefore())
	case !t.isLossCounted():
		return t.answerUnchanged(Duplicate, t.stateBefore())
	}
	t.Losses, t.Unacked = t.LastLoss.Losses, t.LastLoss.Unacked
	if t.isSpreadOut() {
		t.Due = t.now
	}
	return t.finishDecision(Applied)
}

// endLeaseUncounted ends a live lease that its worker has lost. The run starts again at once.
func (t *transition) endLeaseUncounted(token uint64) Answer {
	t.recordLoss(token)
	t.logLoss(token)
	t.Lost++
	t.LastOutcome, t.LastFinished = OutcomeLost, t.latest.MS
	t.addNotice(Notice{Kind: AttemptLost, Attempt: t.Attempt + 1, Count: int64(t.Losses)})
	if t.Cancel || t.Deleting {
		run := t.buildRun(FinishAttempt{Token: token}, t.Attempt)
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	} else {
		t.repeatAttempt()
	}
	return t.finishDecision(Applied)
}

// isSpreadOut reports whether the run is held by [transition.spreadRestarts] and has no reason to
// be any more.
func (t *transition) isSpreadOut() bool {
	return t.Region == RegionDue && t.Held.Reason == HeldPace && t.Held.Key == "" && !t.Recovery && t.Due > t.now
}
