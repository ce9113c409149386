package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// pageSize is how many events are read at once.
	pageSize = 64
	// turn is how long a lane goes on before others of its webhook have their turns. What
	// it delivered is written at the end: so much is delivered again when the node dies.
	turn        = time.Second
	saveTimeout = 3 * time.Second
)

// delivery is one goroutine's work on a lane: its turn.
type delivery struct {
	c     *Courier
	l     *lane
	s     *sender
	began time.Time
	read  bool // something, in this turn
}

// deliver goes on along a lane until it is at its end, an event fails, or its turn is
// over.
func (c *Courier) deliver(l *lane, s *sender) {
	d := &delivery{c: c, l: l, s: s, began: time.Now()}
	if s != nil {
		for d.page() {
		}
		d.leave()
	}
	c.mu.Lock()
	l.busy = false
	c.busy[l.hook]--
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// leave stores what is not yet stored. A node that stops has a moment for it.
func (d *delivery) leave() {
	if !d.l.unsaved {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.l.ctx), saveTimeout)
	defer cancel()
	d.save(ctx, nil)
}

// page delivers a page; false: nothing more has happened yet, or the lane has to stop.
func (d *delivery) page() bool {
	l := d.l
	pages, err := d.c.o.Feed.Read(l.ctx, []job.EventsAsk{{Shard: l.shard, After: l.state.After, Limit: pageSize}})
	if err != nil {
		d.wait(time.Second)
		return false
	}
	page := pages[0]
	if len(page.Happenings) == 0 {
		if !d.read {
			d.wait(passEvery) // the feed knows more than the stream has, which may have lost its end
		}
		return false
	}
	d.read = true
	if page.Gap {
		d.skipped(page.Happenings[0].Place)
	}
	for i := range page.Happenings {
		if h := &page.Happenings[i]; !d.event(h) {
			return false
		}
	}
	return len(page.Happenings) == pageSize
}

// skipped tells of events that are gone.
func (d *delivery) skipped(next job.Place) {
	l := d.l
	n := uint64(1)
	if next.Seq > l.state.After.Seq+1 {
		n = next.Seq - l.state.After.Seq - 1
	}
	d.c.metrics.lost.WithLabelValues(l.hook).Add(float64(n))
	d.c.o.Logger.Error("events were no longer kept when their webhook came to them; keep more of them, or see why it is slow",
		"webhook", l.hook, "shard", l.shard, "events", n)
	d.move(job.Place{MS: next.MS, Seq: next.Seq - 1})
	d.l.unsaved = true
}

// event delivers one event, or passes it over; false: the lane has to stop. It goes by
// what is in force: once the webhook has changed, the next delivery goes on from here.
func (d *delivery) event(h *job.Happening) bool {
	l := d.l
	if !d.inForce() {
		return false
	}
	if h.Kind == "" || !d.s.hook.filter.Matches(h) {
		return d.passed(h.Place)
	}
	if !d.standBefore(h.AtMS) {
		return false
	}
	started := time.Now()
	f := d.s.send(l.ctx, h)
	if f != nil && l.ctx.Err() != nil {
		return false // it is this node that broke off
	}
	d.c.metrics.seconds.WithLabelValues(l.hook).Observe(time.Since(started).Seconds())
	switch {
	case f == nil:
		d.count(delivered)
		return d.passed(h.Place)
	case !d.inForce():
		return false // what did not take it is no longer asked
	}
	return d.failed(h, f)
}

// inForce tells whether the webhook is still what this delivery began with.
func (d *delivery) inForce() bool { return d.c.senderOf(d.l.hook) == d.s }

// standBefore notes since when an event has waited.
func (d *delivery) standBefore(ms int64) bool {
	now, err := d.c.o.Store.Now(d.l.ctx, d.l.shard)
	if err != nil {
		d.wait(time.Second)
		return false
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.l.since = instant(ms, now)
	return true
}

// instant is a time of a shard's clock, which shows now, by the clock of this process:
// the two may be far apart.
func instant(ms, now int64) time.Time {
	return time.Now().Add(time.Duration(ms-now) * time.Millisecond)
}

func (d *delivery) count(outcome string) {
	d.c.metrics.deliveries.WithLabelValues(d.l.hook, outcome).Inc()
}

// passed moves on; false: the turn is over.
func (d *delivery) passed(place job.Place) bool {
	d.move(place)
	d.l.unsaved = true
	return time.Since(d.began) < turn
}

func (d *delivery) move(place job.Place) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.l.state, d.l.since = job.HookState{After: place}, time.Time{}
}

// failed plans the next try, or gives up.
func (d *delivery) failed(h *job.Happening, f *failure) bool {
	l := d.l
	now, err := d.c.o.Store.Now(l.ctx, l.shard)
	if err != nil {
		d.wait(time.Second)
		return false
	}
	before := l.state
	if l.state.Tries == 0 {
		l.state.FirstMS = now
	}
	l.state.Tries++
	elapsed := time.Duration(now-l.state.FirstMS) * time.Millisecond
	delay, again := d.s.hook.retry.Next(int(l.state.Tries), elapsed, backoff.Seed(l.hook+" "+h.ID(), int64(l.state.Tries), 0))
	log := d.c.o.Logger.With("webhook", l.hook, "event", h.ID(), "kind", h.Kind, "tries", l.state.Tries, "reason", f.reason)
	if !again || f.refused {
		letter := &job.HookLetter{Hook: l.hook, Happening: *h, Tries: l.state.Tries, AtMS: now, Reason: f.reason}
		d.move(h.Place)
		if !d.save(l.ctx, letter) {
			d.back(before)
			return false
		}
		d.count(dead)
		log.Error("webhook did not take an event, which is kept as undelivered")
		return true
	}
	delay = max(delay, f.after)
	d.count(retried)
	log.Warn("webhook did not take an event", "again_in", delay)
	l.state.RetryMS = now + delay.Milliseconds()
	d.save(l.ctx, nil)
	d.wait(delay)
	return false
}

// wait keeps the lane from being taken up again for a while, unless the webhook has
// changed meanwhile: what is new may be the cure.
func (d *delivery) wait(delay time.Duration) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if d.c.senders[d.l.hook] == d.s {
		d.l.due = time.Now().Add(delay)
	}
}

// save stores how far the lane is; false: it cannot go on. A shard that was lost is
// another node's, which goes on from what is stored.
func (d *delivery) save(ctx context.Context, letter *job.HookLetter) bool {
	l := d.l
	now, err := d.c.o.Store.Now(ctx, l.shard)
	if err == nil {
		state, evicted := l.state, 0
		state.UpdatedMS = now
		evicted, err = d.c.o.Store.SaveHook(ctx, l.shard, l.lock, l.hook, state, letter)
		d.c.metrics.evicted.WithLabelValues(l.hook).Add(float64(evicted))
	}
	switch {
	case err == nil || errors.Is(err, job.ErrDurability):
		d.l.unsaved = false
		return true
	case errors.Is(err, job.ErrNotHolder):
		l.cancel()
		return false
	}
	d.wait(time.Second)
	return false
}

// back puts the lane back before an event that could not be stored as undelivered: it is
// tried once more, and given up on if that fails.
func (d *delivery) back(before job.HookState) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.l.state = before
}
