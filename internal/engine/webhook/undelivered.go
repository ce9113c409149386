package webhook

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// redeliverLimit bounds one Redeliver.
const redeliverLimit = 100

// UndeliveredEvents lists events that a webhook ("": any) gave up on, newest first.
func (c *Deliverer) UndeliveredEvents(ctx context.Context, hook string, n int) ([]job.UndeliveredEvent, error) {
	if hook != "" && !hookName.MatchString(hook) {
		return nil, nil // or keys would be made of it
	}
	return c.options.Store.UndeliveredEvents(ctx, job.UndeliveredQuery{Webhook: hook, Limit: n})
}

// Redeliver sends up to 100 dead letters of a webhook once more, or the one with an id, oldest first, until one
// fails with a temporary error. A letter that is refused permanently is dropped or moves to the end of the
// queue, so that the next call continues behind it.
func (c *Deliverer) Redeliver(ctx context.Context, hook, event string, drop bool) (job.Redelivery, error) {
	var r job.Redelivery
	if c.findSender(hook) == nil {
		return r, job.Invalid("webhook", "there is no webhook %q", job.Clip(hook, 64))
	}
	letters, err := c.options.Store.UndeliveredEvents(ctx,
		job.UndeliveredQuery{Webhook: hook, Event: event, Oldest: true, Limit: redeliverLimit})
	if err != nil {
		return r, err
	}
	if event != "" && len(letters) == 0 {
		return r, job.Invalid("event_id", "there is no such undelivered event")
	}
	for i := 0; i < len(letters) && r.Failure == ""; i++ {
		if err := c.redeliverLetter(ctx, letters[i], drop, &r); err != nil {
			return r, err
		}
	}
	counts, err := c.options.Store.CountUndeliveredEvents(ctx, []string{hook})
	r.Remaining = counts[hook]
	return r, err
}

// redeliverLetter sends one letter, with the settings in force.
func (c *Deliverer) redeliverLetter(ctx context.Context, l job.UndeliveredEvent, drop bool, r *job.Redelivery) error {
	s := c.findSender(l.Webhook)
	if s == nil {
		r.Failure = "the webhook is no longer there"
		return nil
	}
	f := s.postEvent(ctx, &l.Event)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case f == nil:
		r.Delivered++
		return c.options.Store.DeleteUndeliveredEvent(ctx, l)
	case !f.refused:
		r.Failure = f.reason
		return nil
	}
	r.Refused, r.Refusal = r.Refused+1, cmp.Or(r.Refusal, f.reason)
	if drop {
		return c.options.Store.DeleteUndeliveredEvent(ctx, l)
	}
	now, err := c.options.Store.Now(ctx, l.Event.Shard)
	if err != nil {
		return err
	}
	return c.options.Store.DeferUndeliveredEvent(ctx, l, now)
}

// Statuses returns, for each webhook of this node's file, its progress in the cluster.
func (c *Deliverer) Statuses(ctx context.Context) ([]job.WebhookStatus, error) {
	last, err := c.options.Store.LastEvents(ctx)
	if err != nil {
		return nil, err
	}
	shards := make([]int, len(last))
	for i := range shards {
		shards[i] = i
	}
	states, err := c.options.Store.WebhookProgress(ctx, shards)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	var out []job.WebhookStatus
	var names []string
	for name, s := range c.senders {
		out, names = append(out, job.WebhookStatus{Name: name, URL: plainURL(s.hook.url)}), append(names, name)
	}
	c.mu.Unlock()
	letters, err := c.options.Store.CountUndeliveredEvents(ctx, names)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b job.WebhookStatus) int { return strings.Compare(a.Name, b.Name) })
	for i := range out {
		if err := c.measureBacklog(ctx, &out[i], states, last); err != nil {
			return nil, err
		}
		out[i].Undelivered = letters[out[i].Name]
	}
	return out, nil
}

// measureBacklog measures what is undelivered by the first event after each position.
func (c *Deliverer) measureBacklog(ctx context.Context, h *job.WebhookStatus,
	states map[int]map[string]job.WebhookProgress, last []job.Place) error {
	var asks []job.EventsRequest
	for shard := range last {
		state, known := states[shard][h.Name]
		if !known || !state.After.Before(last[shard]) {
			continue
		}
		if state.Attempts > 0 {
			h.Failing++
		}
		asks = append(asks, job.EventsRequest{Shard: shard, After: state.After, Limit: 1})
	}
	h.Behind = len(asks)
	if h.Behind == 0 {
		return nil
	}
	pages, err := c.options.Store.Events(ctx, asks)
	if err != nil {
		return err
	}
	for i, page := range pages {
		now, err := c.options.Store.Now(ctx, asks[i].Shard)
		if err != nil {
			return err
		}
		if len(page.Events) > 0 {
			h.Lag = max(h.Lag, now.Sub(page.Events[0].AtMS))
		}
	}
	return nil
}

// plainURL removes parts that may be secret: many endpoints read their credential from the path.
func plainURL(u *url.URL) string {
	plain := url.URL{Scheme: u.Scheme, Host: u.Host}
	return plain.String()
}
