package admission

import "github.com/fermata-io/fermata/internal/core/job"

// attemptKey names an attempt.
type attemptKey struct {
	record job.RecordID
	token  uint64
}

// heldByAttempt is what an attempt of this node holds. It is guarded by the mutex until the attempt has ended,
// and does not change any more then.
type heldByAttempt struct {
	holder string
	units  []heldUnit
	target string // name of the cell; "" is none
	// mayProbe: the attempt may be the probe of its target.
	mayProbe bool
	ended    bool
	// leaseEnded: the attempt's lease had ended as well.
	leaseEnded bool
}

// storeHeld stores what runs hold that are about to be delivered.
func (a *Admission) storeHeld(items []*gatedRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, it := range items {
		if len(it.heldUnits) > 0 || it.target != "" {
			a.addHeld(attemptKey{it.Record, it.Known.State.Token}, &heldByAttempt{
				holder: it.holder, units: it.heldUnits, target: it.target, mayProbe: it.mayProbe,
			})
		}
	}
}

// addHeld adds what an attempt holds. The caller holds mu.
func (a *Admission) addHeld(key attemptKey, l *heldByAttempt) {
	if a.mu.attempts[key] == nil {
		a.mu.attempts[key] = l
		a.holdingAttempts.Add(1)
	}
}

// Adopted is called for an attempt that continues at this node. What it holds is renewed from now on under its
// holder's name.
func (a *Admission) Adopted(l job.Leased) {
	queue := job.QueueKey{Namespace: l.Known.State.Lane.Namespace, Queue: l.Known.State.Lane.Queue}
	held := heldByDefinition(l.Record, l.Known.State.Token, l.Known.Definition, queue, a.settingsOf(queue))
	if len(held.units) == 0 && held.target == "" {
		return
	}
	held.mayProbe = held.target != ""
	for i := range held.units {
		held.units[i].unconfirmed = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addHeld(attemptKey{l.Record, l.Known.State.Token}, held)
	wakeUp(a.keepWake) // it may not have been renewed for a while
}

// heldByDefinition is what an attempt must hold by its definition.
func heldByDefinition(record job.RecordID, token uint64, d *job.Definition, queue job.QueueKey,
	limits job.QueueSettings) *heldByAttempt {
	key := record.Key()
	l := &heldByAttempt{holder: job.LeaseID(key.Record(), token), units: unitsOf(d, queue, limits)}
	if d.Target != "" {
		l.target = job.TargetName(key.Namespace, d.Target)
	}
	return l
}

// Ended is called when an attempt is gone from this node. What it held is released if its lease has ended, and
// the result is reported to its target.
func (a *Admission) Ended(e job.Ending) {
	l := a.removeAttempt(e)
	if l == nil || !e.Over {
		return // the attempt's next node renews the rest
	}
	var out deferredCalls
	for _, u := range l.units {
		out.releases = append(out.releases, unitRelease{heldUnit: u, holder: l.holder})
	}
	if r, ok := a.newTargetReport(e, l); ok {
		out.reports = append(out.reports, r)
	}
	a.deferCalls(out)
}

// removeAttempt removes an attempt and returns what it held; nil if that is nothing.
func (a *Admission) removeAttempt(e job.Ending) *heldByAttempt {
	if a.holdingAttempts.Load() > 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		if l := a.mu.attempts[attemptKey{e.Record, e.Token}]; l != nil {
			l.ended, l.leaseEnded = true, e.Over
			delete(a.mu.attempts, attemptKey{e.Record, e.Token})
			a.holdingAttempts.Add(-1)
			return l
		}
	}
	if !e.Over || e.Definition == nil {
		return nil
	}
	queue := job.QueueKey{Namespace: e.Definition.Namespace, Queue: e.Definition.Queue}
	limits := a.settingsOf(queue)
	if len(e.Definition.Locks) == 0 && e.Definition.Target == "" && limits.MaxConcurrency == 0 {
		return nil
	}
	// The end of an attempt that was another node's, or that began without limits.
	l := heldByDefinition(e.Record, e.Token, e.Definition, queue, limits)
	l.mayProbe = l.target != ""
	return l
}
