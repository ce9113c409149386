package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// pageSize is how many events are read at once.
	pageSize = 64
	// maxTurn is how long a lane delivers before other lanes of its webhook get their turns. Its position is
	// stored at the end of the turn, so this much is delivered again if the node dies.
	maxTurn     = time.Second
	saveTimeout = 3 * time.Second
)

// delivery is one goroutine's work on a lane: its turn.
type delivery struct {
	c         *Deliverer
	l         *hookLane
	s         *sender
	startedAt time.Time
	hasRead   bool // something, in this turn
}

// deliverLane goes on along a lane until it is at its end, an event fails, or its turn is
// over.
func (c *Deliverer) deliverLane(l *hookLane, s *sender) {
	d := &delivery{c: c, l: l, s: s, startedAt: time.Now()}
	if s != nil {
		for d.deliverPage() {
		}
		d.saveUnsaved()
	}
	c.mu.Lock()
	l.busy = false
	c.deliveriesByHook[l.hook]--
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// saveUnsaved stores unsaved state. A node that stops has a short time for it.
func (d *delivery) saveUnsaved() {
	if !d.l.unsaved {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.l.ctx), saveTimeout)
	defer cancel()
	d.saveState(ctx, nil)
}

// deliverPage delivers a page; false: nothing more has happened yet, or the lane has to stop.
func (d *delivery) deliverPage() bool {
	l := d.l
	ask := job.EventsRequest{Shard: l.shard, After: l.state.After, Limit: pageSize}
	pages, err := d.c.options.Feed.Read(l.ctx, []job.EventsRequest{ask})
	if err != nil {
		d.postponeLane(time.Second)
		return false
	}
	page := pages[0]
	if len(page.Events) == 0 {
		if !d.hasRead {
			d.postponeLane(passInterval) // the feed knows more than the stream has, which may have lost its end
		}
		return false
	}
	d.hasRead = true
	if page.Gap {
		d.reportSkipped(page.Events[0].Place)
	}
	for i := range page.Events {
		if h := &page.Events[i]; !d.deliverEvent(h) {
			return false
		}
	}
	return page.More
}

// reportSkipped counts and logs events that were trimmed before delivery.
func (d *delivery) reportSkipped(next job.Place) {
	l := d.l
	n := uint64(1)
	if next.Seq > l.state.After.Seq+1 {
		n = next.Seq - l.state.After.Seq - 1
	}
	d.c.metrics.lost.WithLabelValues(l.hook).Add(float64(n))
	d.c.options.Logger.Error("events trimmed before delivery; keep more of them, or find why the webhook is slow",
		"webhook", l.hook, "shard", l.shard, "events", n)
	d.moveTo(job.Place{MS: next.MS, Seq: next.Seq - 1})
	d.l.unsaved = true
}

// deliverEvent delivers one event, or skips it if the filter does not select it; false: the lane has to stop. It uses
// the settings in force: if the webhook has changed, the next delivery continues from here.
func (d *delivery) deliverEvent(h *job.Event) bool {
	l := d.l
	if !d.isHookUnchanged() {
		return false
	}
	if h.Kind == "" || !d.s.hook.filter.Matches(h) {
		return d.advanceTo(h.Place)
	}
	if !d.noteWaitingEvent(h.AtMS) {
		return false
	}
	started := time.Now()
	f := d.s.postEvent(l.ctx, h)
	if f != nil && l.ctx.Err() != nil {
		return false // this node cancelled the request
	}
	d.c.metrics.seconds.WithLabelValues(l.hook).Observe(time.Since(started).Seconds())
	switch {
	case f == nil:
		d.countOutcome(delivered)
		return d.advanceTo(h.Place)
	case !d.isHookUnchanged():
		return false // the failure is one of the old settings
	}
	return d.handleFailure(h, f)
}

// isHookUnchanged reports whether the webhook's configuration is the one that this delivery began with.
func (d *delivery) isHookUnchanged() bool { return d.c.findSender(d.l.hook) == d.s }

// noteWaitingEvent notes since when an event has waited.
func (d *delivery) noteWaitingEvent(ms unixtime.Milli) bool {
	now, err := d.c.options.Store.Now(d.l.ctx, d.l.shard)
	if err != nil {
		d.postponeLane(time.Second)
		return false
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.l.waitingSince = localTime(ms, now)
	return true
}

// localTime returns a time of a shard's clock, which shows now, by the clock of this process:
// the two may be far apart.
func localTime(ms, now unixtime.Milli) time.Time {
	return time.Now().Add(ms.Sub(now))
}

func (d *delivery) countOutcome(outcome string) {
	d.c.metrics.deliveries.WithLabelValues(d.l.hook, outcome).Inc()
}

// advanceTo moves on; false: the turn is over.
func (d *delivery) advanceTo(place job.Place) bool {
	d.moveTo(place)
	d.l.unsaved = true
	return time.Since(d.startedAt) < maxTurn
}

func (d *delivery) moveTo(place job.Place) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.l.state, d.l.waitingSince = job.WebhookProgress{After: place}, time.Time{}
}

// handleFailure plans the next try, or gives up.
func (d *delivery) handleFailure(h *job.Event, f *deliveryFailure) bool {
	l := d.l
	now, err := d.c.options.Store.Now(l.ctx, l.shard)
	if err != nil {
		d.postponeLane(time.Second)
		return false
	}
	before := l.state
	if l.state.Attempts == 0 {
		l.state.FirstMS = now
	}
	l.state.Attempts++
	elapsed := now.Sub(l.state.FirstMS)
	delay, again := d.s.hook.retry.Next(int(l.state.Attempts), elapsed,
		backoff.Seed(l.hook+" "+h.ID(), int64(l.state.Attempts), 0))
	log := d.c.options.Logger.With("webhook", l.hook, "event", h.ID(), "kind", h.Kind, "tries", l.state.Attempts,
		"reason", f.reason)
	if !again || f.refused {
		letter := &job.UndeliveredEvent{Webhook: l.hook, Event: *h, Attempts: l.state.Attempts, AtMS: now, Reason: f.reason}
		d.moveTo(h.Place)
		if !d.saveState(l.ctx, letter) {
			d.restoreState(before)
			return false
		}
		d.countOutcome(dead)
		log.Error("webhook did not take an event, which is kept as undelivered")
		return true
	}
	delay = max(delay, f.retryAfter)
	d.countOutcome(retried)
	log.Warn("webhook did not take an event", "again_in", delay)
	l.state.RetryMS = now.Add(delay)
	d.saveState(l.ctx, nil)
	d.postponeLane(delay)
	return false
}

// postponeLane delays the lane's next turn, unless the webhook has changed meanwhile: the change may have fixed
// the failure.
func (d *delivery) postponeLane(delay time.Duration) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if d.c.senders[d.l.hook] == d.s {
		d.l.notBefore = time.Now().Add(delay)
	}
}

// saveState stores the position of the lane; false: it cannot continue. A lost shard belongs to another node,
// which continues from the stored position.
func (d *delivery) saveState(ctx context.Context, letter *job.UndeliveredEvent) bool {
	l := d.l
	now, err := d.c.options.Store.Now(ctx, l.shard)
	if err == nil {
		state, evicted := l.state, 0
		state.UpdatedMS = now
		evicted, err = d.c.options.Store.SaveWebhookProgress(ctx, l.shard, l.lock, l.hook, state, letter)
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
	d.postponeLane(time.Second)
	return false
}

// restoreState puts the lane back before an event that could not be stored as undelivered: it is
// tried once more, and given up on if that fails.
func (d *delivery) restoreState(before job.WebhookProgress) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	d.l.state = before
}
