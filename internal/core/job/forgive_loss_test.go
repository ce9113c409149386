package job

import "testing"

// lost makes the run lose another lease whose start a worker had acknowledged.
func (w *walker) lost() uint64 {
	token := w.lease().ack().s.Token
	w.on(LoseLease{Token: token})
	return token
}

// However often a worker loses its node, the run is not quarantined while the worker comes back.
func TestForgivenLossesQuarantineNoRun(t *testing.T) {
	for _, early := range []bool{false, true} {
		w := walk(t, def())
		due, run := w.s.expectedStartMS(), w.s.RunID()
		for i := range uint64(10) {
			token := w.lease().ack().s.Token
			if !early {
				w.on(LoseLease{Token: token})
			}
			if d := w.on(ForgiveLoss{Token: token}); d.Answer != Applied || !d.Changed || d.Ended != nil {
				t.Fatalf("forgiven before it was lost %v, time %d: %+v", early, i, d)
			}
			if w.s.Losses != 0 || w.s.Unacked != 0 || w.s.Region != RegionDue || w.s.RunID() != run || w.s.expectedStartMS() != due || w.s.Lost != i+1 {
				t.Fatalf("forgiven before it was lost %v, time %d: %+v", early, i, w.s)
			}
			for _, ev := range []Input{ForgiveLoss{Token: token}, LoseLease{Token: token}} {
				if d := w.on(ev); d.Changed {
					t.Fatalf("%T comes again: %+v", ev, d)
				}
			}
		}
		if tr := (&transition{State: &w.s}); !tr.hasBegun() {
			t.Error("the run counts as one that has not begun")
		}
		w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeSucceeded})
		if w.s.LastLoss != (Loss{}) || w.s.Runs != 1 || w.s.Succeeded != 1 {
			t.Errorf("after the run: %+v", w.s)
		}
	}
}

// A payload that kills its workers is quarantined as ever, also if the network took one of its
// leases.
func TestUnforgivenLossesCount(t *testing.T) {
	w := walk(t, def())
	w.lost()
	w.on(ForgiveLoss{Token: w.lost()})
	w.lost()
	if w.s.Losses != 2 || w.s.Region != RegionDue {
		t.Fatalf("after two losses and one that was forgiven: %+v", w.s)
	}
	third := w.lost()
	if w.last.Ended == nil || w.last.Ended.Outcome != OutcomeQuarantined {
		t.Fatalf("after three: %+v", w.last)
	}
	// It stays quarantined: what came after it has begun.
	if d := w.on(ForgiveLoss{Token: third}); d.Changed || d.Answer != Stale {
		t.Errorf("forgiven after the quarantine: %+v", d)
	}
}

func TestLossIsForgivenOnce(t *testing.T) {
	d := def()
	d.Retry.MaxAttempts = 3
	for name, test := range map[string]struct {
		steps  func(w *walker, first uint64)
		losses uint32 // after the first was forgiven
	}{
		"the run waits":               {func(*walker, uint64) {}, 0},
		"the next attempt is leased":  {func(w *walker, _ uint64) { w.lease() }, 0},
		"the next attempt has begun":  {func(w *walker, _ uint64) { w.lease().ack() }, 0},
		"the next attempt is lost":    {func(w *walker, _ uint64) { w.lost() }, 2},
		"the next attempt has failed": {func(w *walker, _ uint64) { w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed}) }, 0},
		"the next attempt has failed and the one after it is lost": {func(w *walker, _ uint64) {
			w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed})
			w.lost()
		}, 1},
		"the next attempt was given back": {func(w *walker, _ uint64) { w.lease().on(ReturnLease{Token: w.s.Token}) }, 0},
		"it was forgiven, and the next attempt is lost": {func(w *walker, first uint64) {
			w.on(ForgiveLoss{Token: first})
			w.lost()
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := walk(t, d)
			first := w.lost()
			test.steps(w, first)
			live, acked := w.s.Live(), w.s.Acked
			w.on(ForgiveLoss{Token: first})
			if w.s.Losses != test.losses || w.s.Live() != live || w.s.Acked != acked {
				t.Errorf("%+v, want %d losses, live %v, acknowledged %v", w.s, test.losses, live, acked)
			}
			if d := w.on(ForgiveLoss{Token: first}); d.Changed {
				t.Errorf("again: %+v", d)
			}
		})
	}
}

func TestForgivenessEndsALease(t *testing.T) {
	for name, test := range map[string]struct {
		before  func(*walker)
		outcome Outcome // of the run that ends
		region  Region
	}{
		"cancelled": {func(w *walker) { w.on(CancelRun{RunID: w.s.RunID()}) }, OutcomeCancelled, RegionDue},
		"paused":    {func(w *walker) { w.on(Pause{}) }, OutcomeNone, RegionPaused},
		"as it is":  {func(*walker) {}, OutcomeNone, RegionDue},
	} {
		t.Run(name, func(t *testing.T) {
			w := walk(t, def())
			w.lease().ack()
			test.before(w)
			w.on(ForgiveLoss{Token: w.s.Token})
			outcome := OutcomeNone
			if w.last.Ended != nil {
				outcome = w.last.Ended.Outcome
			}
			if outcome != test.outcome || w.s.Region != test.region || w.s.Losses != 0 {
				t.Errorf("%v, %+v", outcome, w.s)
			}
		})
	}
	w := walk(t, def())
	w.lease().ack()
	for _, token := range []uint64{0, w.s.Token + 1, w.s.Token - 1} {
		if d := w.on(ForgiveLoss{Token: token}); d.Changed || d.Answer != Stale {
			t.Errorf("token %d of %d: %+v", token, w.s.Token, d)
		}
	}
}

// A run that stood apart as one more loss would quarantine it need not when that is no more so.
func TestForgivenRunIsNotSpread(t *testing.T) {
	w := walk(t, def())
	w.lost()
	second := w.lost()
	if w.s.Held.Reason != HeldPace || w.s.Due <= w.now {
		t.Fatalf("it does not stand apart: %+v", w.s)
	}
	w.on(ForgiveLoss{Token: second})
	if w.s.Due > w.now || w.s.Losses != 1 {
		t.Errorf("%+v at %d", w.s, w.now)
	}
}

// Nodes of an earlier version keep LastLoss as it is, whatever they do.
func TestLossOfAnEarlierVersionIsNotForgiven(t *testing.T) {
	w := walk(t, def())
	first := w.lost()
	w.s.Losses = 2 // which it counted, and did not note
	if d := w.on(ForgiveLoss{Token: first}); d.Changed {
		t.Errorf("another loss was forgiven: %+v", d.State)
	}
	left := w.s.LastLoss
	w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeSucceeded})
	w.s.LastLoss = left
	if tr := (&transition{State: &w.s}); tr.hasBegun() {
		t.Error("the next run counts as begun")
	}
}

// Runs that are records of their own are forgiven like others.
func TestLossesOfChildrenAreForgiven(t *testing.T) {
	f := newFamily(t, def())
	f.on(StartBackfill{Backfill{ID: "b", NextMS: t0 - 180_001, ToMS: t0, Concurrency: 1}})
	slot := f.first(func(State) bool { return true })
	for _, early := range []bool{false, true} {
		f.leaseChild(slot)
		child := f.children[slot]
		child.Acked = true
		f.children[slot] = child
		if !early {
			f.onChild(slot, LoseLease{Token: child.Token})
		}
		f.onChild(slot, ForgiveLoss{Token: child.Token})
		if s := f.children[slot]; f.fault != nil || s.Losses != 0 || s.Region != RegionDue || s.LastLoss.Token != child.Token {
			t.Errorf("%v: %+v", f.fault, s)
		}
	}
}
