package client

import (
	"context"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Webhooks returns the webhooks of the node that answers.
func (a Admin) Webhooks(ctx context.Context) ([]*Webhook, error) {
	r, err := callWithRetry(ctx, a.c, a.c.events.ListWebhooks, &fermatav1.ListWebhooksRequest{})
	return r.GetWebhooks(), err
}

// UndeliveredEventsOptions configure [Admin.UndeliveredEvents].
type UndeliveredEventsOptions struct {
	// Webhook is the name of a webhook. Default "": all webhooks.
	Webhook string
	// Limit is the maximum number of events, 1 to 1000. Default 100.
	Limit int
}

// UndeliveredEvents returns events whose delivery to a webhook was given up, newest first.
func (a Admin) UndeliveredEvents(ctx context.Context, o UndeliveredEventsOptions) ([]*UndeliveredEvent, error) {
	r, err := callWithRetry(ctx, a.c, a.c.events.ListUndeliveredEvents,
		&fermatav1.ListUndeliveredEventsRequest{Webhook: o.Webhook, PageSize: int32(o.Limit)})
	return r.GetEvents(), err
}

// RedeliverOptions select the events to deliver again, and what happens to events that cannot be delivered.
type RedeliverOptions struct {
	// Event is the id of a single event. Default "": up to 100 events, oldest first.
	Event string
	// DropRefused deletes events that the endpoint refuses permanently.
	DropRefused bool
}

// RedeliverResult counts the results of a redelivery.
type RedeliverResult struct {
	Delivered int
	// Failure is the error that ended the redelivery; "" if none did.
	Failure string
	// Refused is the number of events that the endpoint refused permanently. Refusal is the error of the first
	// of them.
	Refused int
	Refusal string
	// Remaining is the number of undelivered events that the webhook has left.
	Remaining int
}

// RedeliverEvents delivers events again whose delivery to a webhook was given up. It ends at the first temporary
// failure. Permanently refused events are skipped and moved to the end.
func (a Admin) RedeliverEvents(ctx context.Context, webhook string, o RedeliverOptions) (RedeliverResult, error) {
	r, err := a.c.events.RedeliverEvents(ctx, &fermatav1.RedeliverEventsRequest{Webhook: webhook, EventId: o.Event,
		DropRefused: o.DropRefused})
	return RedeliverResult{
		Delivered: int(r.GetDelivered()), Failure: r.GetFailure(), Refused: int(r.GetRefused()),
		Refusal: r.GetRefusal(), Remaining: int(r.GetRemaining()),
	}, wrapError(err)
}
