package rpc

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Events is the event stream of the cluster.
type Events interface {
	// Watch ends with ctx, or when send fails.
	Watch(ctx context.Context, q job.EventQuery, send func(job.EventBatch) error) error
}

// Webhooks lists webhooks and their undelivered events.
type Webhooks interface {
	Statuses(context.Context) ([]job.WebhookStatus, error)
	UndeliveredEvents(ctx context.Context, hook string, n int) ([]job.UndeliveredEvent, error)
	// Redeliver tries the letters of a webhook, or the one of an event, once more. With
	// drop those that the endpoint refuses are deleted.
	Redeliver(ctx context.Context, hook, event string, drop bool) (job.Redelivery, error)
}

// noEvents is for a node that knows of none.
type noEvents struct{}

func (noEvents) Watch(context.Context, job.EventQuery, func(job.EventBatch) error) error {
	return job.ErrEventsOff
}

// eventService implements fermatav1.EventServiceServer.
type eventService struct {
	fermatav1.UnimplementedEventServiceServer
	events Events
	hooks  Webhooks
}

// WatchEvents ends when a connection gets old, so that the watcher comes back to any
// node, when its caller has lost the role that it began with, and when it does not read.
func (s *eventService) WatchEvents(q *fermatav1.WatchEventsRequest,
	stream grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
	query, namespace, err := convert.EventQueryFromPB(q)
	if err != nil {
		return err
	}
	w := &watcher{stream: stream, namespace: namespace, ended: make(chan error, 1)}
	if c := guard.CallerFrom(stream.Context()); c != nil {
		w.caller, w.queues = c, query.Filter.Queues
		if err := w.authorizeQueues(c); err != nil {
			return err
		}
		query.Watcher = c.ShareHolder(namespace)
		w.scope = guard.RoleScopeFrom(stream.Context(), namespace)
		query.Filter.Covers = w.scope.Filter()
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	if c := guard.CallerFrom(ctx); c != nil {
		query.Charge = func(pages int) error { return c.Charge(ctx, pages) }
	}
	if share := guard.UnreadShareFrom(ctx); share != nil {
		query.Memory = share
	}
	go w.forwardEvents(ctx, s.events, query)
	err = w.waitForEnd()
	cancel()
	if !w.stopSending() {
		return err // what waits to be sent ends with the stream, when this returns
	}
	if first := <-w.ended; err == nil {
		err = first
	}
	return err
}

// watcher is one stream. What is sent is sent by a goroutine of its own, so that a
// stream can end whose other side does not read.
type watcher struct {
	stream    grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]
	caller    *guard.Caller // nil where callers are not authenticated
	namespace string
	queues    []string         // that the request names
	scope     *guard.RoleScope // nil: the caller may read all queues
	ended     chan error
	sending   atomic.Int64 // since when, Unix nanoseconds; 0: nothing is being sent; closed
}

// sendingClosed is the value of sending after which nothing is sent any more.
const sendingClosed = -1

func (w *watcher) forwardEvents(ctx context.Context, events Events, q job.EventQuery) {
	defer func() {
		if p := recover(); p != nil {
			w.ended <- &apierror.Panic{Value: p, Stack: debug.Stack()}
		}
	}()
	w.ended <- events.Watch(ctx, q, w.send)
}

func (w *watcher) send(b job.EventBatch) error {
	if !w.sending.CompareAndSwap(0, time.Now().UnixNano()) {
		return context.Canceled
	}
	defer w.sending.Store(0)
	return w.stream.Send(&fermatav1.WatchEventsResponse{
		Events: convert.Map(b.Events, convert.EventToPB), ResumeToken: b.Token,
	})
}

// stopSending prevents further sends. It is false while a message is being sent. The caller must not wait for that
// message: the client may not be reading.
func (w *watcher) stopSending() bool { return w.sending.CompareAndSwap(0, sendingClosed) }

// isStuck reports whether a message has been waiting to be sent for longer than guard.StuckTimeout.
func (w *watcher) isStuck() bool {
	since := w.sending.Load()
	return since > 0 && time.Since(time.Unix(0, since)) >= guard.StuckTimeout
}

// waitForEnd returns why the stream is to end; nil: it has.
func (w *watcher) waitForEnd() error {
	recheck, old := time.NewTicker(guard.RecheckInterval), time.NewTimer(guard.StreamAge)
	defer recheck.Stop()
	defer old.Stop()
	for {
		select {
		case err := <-w.ended:
			w.ended <- err
			return nil
		case <-old.C:
			return apierror.ErrStreamAged
		case <-recheck.C:
			if w.isStuck() {
				return apierror.Resumable("WATCHER_TOO_SLOW", "the watcher does not read; go on from its last token")
			}
			if err := w.reauthorize(); err != nil {
				return err
			}
		}
	}
}

// reauthorize looks whether the caller may still do what it may have begun.
func (w *watcher) reauthorize() error {
	if w.caller == nil {
		return nil
	}
	ctx := w.stream.Context()
	now, err := w.caller.Reauthenticate(ctx)
	if err != nil {
		return err
	}
	if err := w.authorizeQueues(now); err != nil {
		return err
	}
	if w.scope == nil {
		// Nothing is left out for those who might read all queues; their role may have been
		// limited since.
		return now.Authorize(ctx, authz.ReadJobs, w.namespace, "")
	}
	return nil
}

// authorizeQueues decides whether a caller may watch the namespace: the queues that the request names,
// or without any, those that it may read.
func (w *watcher) authorizeQueues(c *guard.Caller) error {
	ctx := w.stream.Context()
	if len(w.queues) > 0 {
		return c.AuthorizeQueues(ctx, authz.ReadJobs, w.namespace, w.queues)
	}
	return c.AuthorizeAnyQueue(ctx, authz.ReadJobs, w.namespace)
}

func (s *eventService) ListWebhooks(ctx context.Context,
	_ *fermatav1.ListWebhooksRequest) (*fermatav1.ListWebhooksResponse, error) {
	if s.hooks == nil {
		return nil, errNoWebhooks
	}
	statuses, err := s.hooks.Statuses(ctx)
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListWebhooksResponse{Webhooks: convert.Map(statuses, func(w job.WebhookStatus) *fermatav1.Webhook {
		return &fermatav1.Webhook{
			Name: w.Name, Url: w.URL, BehindShards: int32(w.Behind), Lag: durationpb.New(w.Lag), FailingShards: int32(w.Failing),
			Undelivered: int32(w.Undelivered),
		}
	})}, nil
}

// errNoWebhooks answers where there is no file of webhooks.
var errNoWebhooks = status.Error(codes.FailedPrecondition,
	"this node has no webhooks: see --webhooks-file of the scheduler")

func (s *eventService) ListUndeliveredEvents(ctx context.Context,
	q *fermatav1.ListUndeliveredEventsRequest) (*fermatav1.ListUndeliveredEventsResponse, error) {
	size := int(q.GetPageSize())
	switch {
	case s.hooks == nil:
		return nil, errNoWebhooks
	case size < 0 || size > 1000:
		return nil, job.Invalid("page_size", "is %d, want 1 to 1000, or 0 for 100", size)
	case size == 0:
		size = 100
	}
	letters, err := s.hooks.UndeliveredEvents(ctx, q.GetWebhook(), size)
	if err != nil {
		return nil, err
	}
	r := &fermatav1.ListUndeliveredEventsResponse{}
	for bytes := 0; len(letters) > 0; letters = letters[1:] {
		if bytes >= maxUndeliveredBytes {
			r.Incomplete = true
			break
		}
		event := undeliveredToPB(letters[0])
		r.Events, bytes = append(r.Events, event), bytes+proto.Size(event)
	}
	return r, nil
}

// maxUndeliveredBytes bounds a list of undelivered events, but for its last one.
const maxUndeliveredBytes = 4 << 20

func undeliveredToPB(l job.UndeliveredEvent) *fermatav1.UndeliveredEvent {
	return &fermatav1.UndeliveredEvent{
		Webhook: l.Webhook, Event: convert.EventToPB(l.Event), Attempts: int32(l.Attempts), Time: convert.MillisToPB(l.AtMS),
		Reason: l.Reason,
	}
}

func (s *eventService) RedeliverEvents(ctx context.Context,
	q *fermatav1.RedeliverEventsRequest) (*fermatav1.RedeliverEventsResponse, error) {
	switch {
	case s.hooks == nil:
		return nil, errNoWebhooks
	case q.GetWebhook() == "":
		return nil, job.Invalid("webhook", "is empty")
	}
	BeginWrite(ctx)
	r, err := s.hooks.Redeliver(ctx, q.GetWebhook(), q.GetEventId(), q.GetDropRefused())
	if err != nil {
		if r.Delivered+r.Refused > 0 {
			NoteStored(ctx, r.Delivered)
		}
		return nil, err
	}
	return &fermatav1.RedeliverEventsResponse{
		Delivered: int32(r.Delivered), Failure: r.Failure, Refused: int32(r.Refused), Refusal: r.Refusal,
		Remaining: int32(r.Remaining),
	}, nil
}
