package dispatch

import (
	"context"
	"time"
)

// Before orders attempts by their next point in time.
func (a *attempt) Before(other *attempt) bool { return a.nextAt.Before(other.nextAt) }

// Place is the attempt's place among the timers.
func (a *attempt) Place() *int { return &a.timerPlace }

// moveTimer moves an attempt to its new time; the zero time removes it.
func (d *Dispatcher) moveTimer(a *attempt, at time.Time) {
	h := &d.mu.timers
	switch {
	case at.IsZero():
		if a.timerPlace > 0 {
			h.Remove(a)
		}
	case a.timerPlace > 0:
		a.nextAt = at
		h.Fix(a)
	default:
		a.nextAt = at
		h.Push(a)
	}
}

// scheduleAttempt updates the attempt's timer and wakes the clock loop if it sleeps longer than that.
func (d *Dispatcher) scheduleAttempt(a *attempt) {
	if a.forgotten {
		return
	}
	at := a.nextDeadline()
	d.moveTimer(a, at)
	if !at.IsZero() && at.Before(d.mu.clockWakesAt) {
		d.mu.clockWakesAt = at
		wakeUp(d.clockWake)
	}
}

// roundToGrid rounds an instant up to the grid of renewals.
func (d *Dispatcher) roundToGrid(t time.Time) time.Time {
	tick := d.o.renewalGrid()
	since := t.Sub(d.start)
	return d.start.Add((since + tick - 1) / tick * tick)
}

// idlePause bounds the clock's sleep when nothing is to be done.
const idlePause = time.Hour

func (d *Dispatcher) clockLoop(ctx context.Context) {
	timer := time.NewTimer(idlePause)
	defer timer.Stop()
	for {
		timer.Reset(d.handleDueAttempts())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.clockWake:
		}
	}
}

// handleDueAttempts does what is due and returns the time until more is.
func (d *Dispatcher) handleDueAttempts() time.Duration {
	var fx pendingEffects
	d.mu.Lock()
	now := time.Now()
	for len(d.mu.timers) > 0 && !d.mu.timers.Top().nextAt.After(now) {
		a := d.mu.timers.Top()
		d.handleDue(a, now, &fx)
		d.scheduleAttempt(a)
	}
	wait := idlePause
	if ends := d.endSilent(now); !ends.IsZero() {
		wait = ends.Sub(now)
	}
	if len(d.mu.timers) > 0 {
		wait = min(wait, d.mu.timers.Top().nextAt.Sub(now))
	}
	d.mu.clockWakesAt = now.Add(wait)
	d.mu.Unlock()
	d.runEffects(&fx)
	return wait
}

// handleDue does all that is due about one attempt. Each branch moves the attempt's next instant on.
func (d *Dispatcher) handleDue(a *attempt, now time.Time, fx *pendingEffects) {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	switch {
	case a.pendingEvent != nil && due(a.retryAt):
		a.retryAt = time.Time{}
		fx.submitChange(a)
	case a.pendingEvent == nil && !a.over && a.streamOpen() && due(a.deadline):
		d.settleTimedOut(a, fx)
	case a.pendingEvent == nil && !a.over && due(a.trustedUntil):
		d.metrics.lost.WithLabelValues("expired").Inc()
		d.loseLease(a, false, fx)
	}
	if a.pendingEvent == nil && !a.over && a.streamOpen() && due(a.lateAt) {
		fx.submitJudgement(a)
	}
	if !a.forgotten && !a.over && !a.inIO && due(a.renewAt) {
		a.renewAt = time.Time{}
		a.wantRenew = true
		d.queueIO(a)
	}
}

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
