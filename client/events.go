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
	// All namespaces, and what happens to the cluster itself, instead of the client's
	// namespace.
	AllNamespaces bool
	Queues, Jobs  []string
	// Kinds such as "run.dead", or all of a family: "run.*".
	Kinds  []string
	Labels map[string]string
	// ResumeToken is that of an earlier watch; Since begins with what is kept from then
	// on. Zero values begin with what comes.
	ResumeToken string
	Since       time.Time
	// UntilNow ends the watch with what there was when it began.
	UntilNow bool
}

// EventBatch is what is told at once. It may have no events; ResumeToken goes on after
// them.
type EventBatch struct {
	Events      []*Event
	ResumeToken string
}

// WatchEvents tells what happens until ctx ends, the loop is left, or an error comes
// that a repetition cannot change; see [IsEventsGone]. A stream that breaks is resumed,
// at another node if need be and for as long as it takes, with nothing left out and nothing
// told twice. Only the start is tried no more than Options.Attempts times.
func (c *Client) WatchEvents(ctx context.Context, f EventFilter) iter.Seq2[EventBatch, error] {
	q := &fermatav1.WatchEventsRequest{
		Parent: c.namespaceName(), Queues: f.Queues, JobIds: f.Jobs, Kinds: f.Kinds, Labels: f.Labels, ResumeToken: f.ResumeToken, UntilNow: f.UntilNow,
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
			// Each stream begins with a token.
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

// errConsumerStopped says that the loop was left.
var errConsumerStopped = errors.New("left")

// watchOnce is one stream. The request goes on after what was told.
func (c *Client) watchOnce(ctx context.Context, q *fermatav1.WatchEventsRequest, yield func(EventBatch, error) bool) (told bool, err error) {
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

// IsEventsGone tells that what follows a resume token is no longer kept.
func IsEventsGone(err error) bool { return status.Code(err) == codes.OutOfRange }

// Webhooks lists the webhooks of the node that answers.
func (c *Client) Webhooks(ctx context.Context) ([]*Webhook, error) {
	r, err := callWithRetry(ctx, c, c.events.ListWebhooks, &fermatav1.ListWebhooksRequest{})
	return r.GetWebhooks(), err
}

// UndeliveredEvents lists up to n (1 to 1000) events that a webhook ("": any) gave up on,
// newest first.
func (c *Client) UndeliveredEvents(ctx context.Context, webhook string, n int) ([]*UndeliveredEvent, error) {
	r, err := callWithRetry(ctx, c, c.events.ListUndeliveredEvents, &fermatav1.ListUndeliveredEventsRequest{Webhook: webhook, PageSize: int32(n)})
	return r.GetEvents(), err
}

// RedeliverOptions say what is tried once more, and what becomes of what cannot be
// delivered.
type RedeliverOptions struct {
	// Event is the id of the only one; "": up to 100, oldest first.
	Event string
	// DropRefused deletes what the endpoint refuses for good.
	DropRefused bool
}

// RedeliverResult is what became of undelivered events.
type RedeliverResult struct {
	Delivered int
	// Failure is what the one met that ended it; "": none did.
	Failure string
	// Refused are those that the endpoint refused for good, Refusal is what the first of
	// them met.
	Refused int
	Refusal string
	// Remaining are all that the webhook has left.
	Remaining int
}

// RedeliverEvents tries events that a webhook gave up on once more. It ends at the first
// failure that may pass; what is refused for good is passed over, and comes last from
// then on.
func (c *Client) RedeliverEvents(ctx context.Context, webhook string, o RedeliverOptions) (RedeliverResult, error) {
	r, err := c.events.RedeliverEvents(ctx, &fermatav1.RedeliverEventsRequest{Webhook: webhook, EventId: o.Event, DropRefused: o.DropRefused})
	return RedeliverResult{
		Delivered: int(r.GetDelivered()), Failure: r.GetFailure(), Refused: int(r.GetRefused()), Refusal: r.GetRefusal(), Remaining: int(r.GetRemaining()),
	}, err
}
