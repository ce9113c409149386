package dispatch

import (
	"context"
	"time"
)

// Before orders attempts by their next point in time.
func (a *attempt) Before(other *attempt) bool { return a.at.Before(other.at) }

// Place is that among the timers.
func (a *attempt) Place() *int { return &a.place }

// wakeAt moves an attempt to its new time; the zero time takes it out.
func (d *Dispatcher) wakeAt(a *attempt, at time.Time) {
	h := &d.mu.timers
	switch {
	case at.IsZero():
		if a.place > 0 {
			h.Remove(a)
		}
	case a.place > 0:
		a.at = at
		h.Fix(a)
	default:
		a.at = at
		h.Push(a)
	}
}

// schedule puts the attempt where its next point in time belongs and wakes the
// clock if that is earlier than what it waits for.
func (d *Dispatcher) schedule(a *attempt) {
	if a.gone {
		return
	}
	at := a.next()
	d.wakeAt(a, at)
	if !at.IsZero() && at.Before(d.mu.armed) {
		d.mu.armed = at
		signal(d.clockWake)
	}
}

// onGrid moves an instant up to the grid of renewals.
func (d *Dispatcher) onGrid(t time.Time) time.Time {
	tick := d.o.tick()
	since := t.Sub(d.start)
	return d.start.Add((since + tick - 1) / tick * tick)
}

// idlePause bounds the clock's sleep when nothing is to be done.
const idlePause = time.Hour

func (d *Dispatcher) clockLoop(ctx context.Context) {
	timer := time.NewTimer(idlePause)
	defer timer.Stop()
	for {
		timer.Reset(d.expire())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.clockWake:
		}
	}
}

// expire does what is due and returns the time until more is.
func (d *Dispatcher) expire() time.Duration {
	var fx effects
	d.mu.Lock()
	now := time.Now()
	for len(d.mu.timers) > 0 && !d.mu.timers.Top().at.After(now) {
		a := d.mu.timers.Top()
		d.act(a, now, &fx)
		d.schedule(a)
	}
	wait := idlePause
	if ends := d.endSilent(now); !ends.IsZero() {
		wait = ends.Sub(now)
	}
	if len(d.mu.timers) > 0 {
		wait = min(wait, d.mu.timers.Top().at.Sub(now))
	}
	d.mu.armed = now.Add(wait)
	d.mu.Unlock()
	d.finish(&fx)
	return wait
}

// act does all that is due about one attempt. Each branch moves the attempt's
// next point in time on.
func (d *Dispatcher) act(a *attempt, now time.Time, fx *effects) {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	switch {
	case a.pending != nil && due(a.retryAt):
		a.retryAt = time.Time{}
		fx.submit(a)
	case a.pending == nil && !a.over && a.live() && due(a.deadline):
		d.timeOut(a, fx)
	case a.pending == nil && !a.over && due(a.until):
		d.metrics.lost.WithLabelValues("expired").Inc()
		d.lose(a, false, fx)
	}
	if a.pending == nil && !a.over && a.live() && due(a.lateAt) {
		fx.judge(a)
	}
	if !a.gone && !a.over && !a.inIO && due(a.renewAt) {
		a.renewAt = time.Time{}
		a.wantRenew = true
		d.queueIO(a)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
