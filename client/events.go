package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
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
	// StopAtEnd ends the watch after the events that were stored when it began.
	StopAtEnd bool
}

// EventBatch is a batch of events, which may be empty. ResumeToken resumes after it.
type EventBatch struct {
	Events      []*Event
	ResumeToken string
}

// WatchEvents returns events until ctx ends, the loop is left, or a permanent error occurs; see [ErrEventsGone].
// A broken stream is resumed, also at another node, without gaps and without duplicates, until ctx ends. Only
// the first connection is limited to Options.Attempts attempts.
func (c *Client) WatchEvents(ctx context.Context, f EventFilter) iter.Seq2[EventBatch, error] {
	q := &fermatav1.WatchEventsRequest{
		Parent: c.listParent(f.AllNamespaces), Queues: f.Queues, JobIds: f.Jobs, Kinds: f.Kinds, Labels: f.Labels,
		ResumeToken: f.ResumeToken, StopAtEnd: f.StopAtEnd,
	}
	if !f.Since.IsZero() && f.ResumeToken == "" {
		q.StartTime = timestamppb.New(f.Since)
	}
	return func(yield func(EventBatch, error) bool) {
		started := false
		for attempt := 1; ; attempt++ {
			// Each stream starts with a token.
			received, err := c.watchOnce(ctx, q, yield)
			if received {
				attempt, started = 1, true
			}
			if err == nil || errors.Is(err, errConsumerStopped) {
				return
			}
			wait, worthwhile := delayAfter(err, attempt)
			if ctx.Err() != nil || !worthwhile || !started && attempt >= c.options.Attempts || !waitFor(ctx, wait) {
				yield(EventBatch{}, wrapError(err))
				return
			}
		}
	}
}

// errConsumerStopped: the caller left the loop.
var errConsumerStopped = errors.New("consumer stopped")

// watchOnce reads one stream. It updates the request to resume after the delivered events.
func (c *Client) watchOnce(ctx context.Context, q *fermatav1.WatchEventsRequest,
	yield func(EventBatch, error) bool) (received bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.events.WatchEvents(ctx, q)
	if err != nil {
		return false, err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return received, nil
		}
		if err != nil {
			return received, err
		}
		received = true
		if !yield(EventBatch{Events: r.GetEvents(), ResumeToken: r.GetResumeToken()}, nil) {
			return received, errConsumerStopped
		}
		q.ResumeToken, q.StartTime = r.GetResumeToken(), nil
	}
}
