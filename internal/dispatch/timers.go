package dispatch

import (
	"context"
	"time"
)

// timers is a binary heap of attempts, earliest first.
type timers []*attempt

func (h timers) less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h timers) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h timers) up(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h timers) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

// set moves an attempt to its new time; the zero time takes it out.
func (h *timers) set(a *attempt, at time.Time) {
	switch {
	case at.IsZero():
		h.remove(a)
		return
	case a.index < 0:
		a.index = len(*h)
		*h = append(*h, a)
	}
	a.at = at
	h.up(a.index)
	h.down(a.index)
}

func (h *timers) remove(a *attempt) {
	i, last := a.index, len(*h)-1
	if i < 0 {
		return
	}
	if i != last {
		h.swap(i, last)
	}
	(*h)[last] = nil
	*h = (*h)[:last]
	if i != last {
		h.up(i)
		h.down(i)
	}
	a.index = -1
}

// schedule puts the attempt where its next point in time belongs and wakes the
// clock if that is earlier than what it waits for.
func (d *Dispatcher) schedule(a *attempt) {
	if a.gone {
		return
	}
	at := a.next()
	d.mu.timers.set(a, at)
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
	for len(d.mu.timers) > 0 && !d.mu.timers[0].at.After(now) {
		a := d.mu.timers[0]
		d.act(a, now, &fx)
		d.schedule(a)
	}
	wait := idlePause
	if len(d.mu.timers) > 0 {
		wait = d.mu.timers[0].at.Sub(now)
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
