package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Messages about events.
type (
	Event            = fermatav1.Event
	Webhook          = fermatav1.Webhook
	UndeliveredEvent = fermatav1.UndeliveredEvent
)

// EventFilter selects events; zero fields select all.
type EventFilter struct {
	// AllNamespaces selects the events of all namespaces and of the cluster, instead of the client's namespace.
	AllNamespaces bool
	Queues, Jobs  []string
	// Kinds are kinds such as "run.dead", or families such as "run.*".
	Kinds  []string
	Labels map[string]string
	// ResumeToken resumes an earlier watch. Since starts at the stored events from that time on. Zero values
	// start with new events.
	ResumeToken string
	Since       time.Time
	// UntilNow ends the watch after the events that were stored when it began.
	UntilNow bool
}

// EventBatch is a batch of events, which may be empty. ResumeToken resumes after it.
type EventBatch struct {
	Events      []*Event
	ResumeToken string
}

// WatchEvents returns events until ctx ends, the loop is left, or a permanent error occurs; see [IsEventsGone].
// A broken stream is resumed, also at another node, without gaps and without duplicates, until ctx ends. Only
// the first connection is limited to Options.Attempts attempts.
func (c *Client) WatchEvents(ctx context.Context, f EventFilter) iter.Seq2[EventBatch, error] {
	q := &fermatav1.WatchEventsRequest{
		Parent: c.namespaceName(), Queues: f.Queues, JobIds: f.Jobs, Kinds: f.Kinds, Labels: f.Labels,
		ResumeToken: f.ResumeToken, UntilNow: f.UntilNow,
	}
	if f.AllNamespaces {
		q.Parent = ""
	}
	if !f.Since.IsZero() && f.ResumeToken == "" {
		q.StartTime = timestamppb.New(f.Since)
	}
	return func(yield func(EventBatch, error) bool) {
		started := false
		for attempt := 1; ; attempt++ {
			// Each stream starts with a token.
			told, err := c.watchOnce(ctx, q, yield)
			if told {
				attempt, started = 1, true
			}
			if err == nil || errors.Is(err, errConsumerStopped) {
				return
			}
			wait, worthwhile := delayAfter(err, attempt)
			if ctx.Err() != nil || !worthwhile || !started && attempt >= c.options.Attempts || !waitFor(ctx, wait) {
				yield(EventBatch{}, err)
				return
			}
		}
	}
}

// errConsumerStopped: the caller left the loop.
var errConsumerStopped = errors.New("left")

// watchOnce reads one stream. It updates the request to resume after the delivered events.
func (c *Client) watchOnce(ctx context.Context, q *fermatav1.WatchEventsRequest,
	yield func(EventBatch, error) bool) (told bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.events.WatchEvents(ctx, q)
	if err != nil {
		return false, err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return told, nil
		}
		if err != nil {
			return told, err
		}
		told = true
		if !yield(EventBatch{Events: r.GetEvents(), ResumeToken: r.GetResumeToken()}, nil) {
			return told, errConsumerStopped
		}
		q.ResumeToken, q.StartTime = r.GetResumeToken(), nil
	}
}

// IsEventsGone reports whether the events after a resume token are no longer kept.
func IsEventsGone(err error) bool { return status.Code(err) == codes.OutOfRange }

// Webhooks returns the webhooks of the node that answers.
func (c *Client) Webhooks(ctx context.Context) ([]*Webhook, error) {
	r, err := callWithRetry(ctx, c, c.events.ListWebhooks, &fermatav1.ListWebhooksRequest{})
	return r.GetWebhooks(), err
}

// UndeliveredEvents returns up to n events (1 to 1000) whose delivery to a webhook was given up, newest first.
// The webhook "" selects all webhooks.
func (c *Client) UndeliveredEvents(ctx context.Context, webhook string, n int) ([]*UndeliveredEvent, error) {
	r, err := callWithRetry(ctx, c, c.events.ListUndeliveredEvents,
		&fermatav1.ListUndeliveredEventsRequest{Webhook: webhook, PageSize: int32(n)})
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
func (c *Client) RedeliverEvents(ctx context.Context, webhook string, o RedeliverOptions) (RedeliverResult, error) {
	r, err := c.events.RedeliverEvents(ctx, &fermatav1.RedeliverEventsRequest{Webhook: webhook, EventId: o.Event,
		DropRefused: o.DropRefused})
	return RedeliverResult{
		Delivered: int(r.GetDelivered()), Failure: r.GetFailure(), Refused: int(r.GetRefused()),
		Refusal: r.GetRefusal(), Remaining: int(r.GetRemaining()),
	}, err
}
