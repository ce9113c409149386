package rpc

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
	"github.com/fermata-io/fermata/proto/externalscaler"
)

// Sizes tells how much there is to do in some queues together, in the whole cluster. Errors are those of
// package job, or mean that too many are asked for.
type Sizes interface {
	Size(ctx context.Context, who fairshare.Holder, queues []job.QueueKey) (autoscale.Size, error)
	// Watch calls tell again and again, until ctx ends, tell fails, or with nil, when the
	// node stops.
	Watch(ctx context.Context, who fairshare.Holder, queues []job.QueueKey, tell func(autoscale.Size) error) error
	// Told notes what became of a size: whether workers of the queues are needed.
	Told(queues []job.QueueKey, needed bool)
}

// scalerService is the interface by which KEDA asks. What KEDA calls the metadata of a
// trigger is a [autoscale.Trigger].
type scalerService struct {
	externalscaler.UnimplementedExternalScalerServer
	sizes   Sizes
	streams streamCount
}

// streamsPerConnection leaves room on a connection, which KEDA has one of, for calls that are no streams: without
// it they would wait for ever. Whose stream is refused is asked for by calls.
const streamsPerConnection = 200

// streamCount counts open streams by connection.
type streamCount struct {
	mu sync.Mutex
	by map[string]int
}

func (c *streamCount) enter(connection string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[connection] >= streamsPerConnection {
		return false
	}
	if c.by == nil {
		c.by = make(map[string]int)
	}
	c.by[connection]++
	return true
}

func (c *streamCount) leave(connection string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[connection]--; c.by[connection] == 0 {
		delete(c.by, connection)
	}
}

func (s *scalerService) IsActive(ctx context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	trigger, err := parseTrigger(ref)
	if err != nil {
		return nil, err
	}
	size, err := s.sizes.Size(ctx, callerOf(ctx).holder(trigger.Namespace), queuesOf(trigger))
	if err != nil {
		return nil, err
	}
	active := trigger.Active(size)
	s.sizes.Told(queuesOf(trigger), active)
	return &externalscaler.IsActiveResponse{Result: active}, nil
}

// GetMetricSpec asks nobody, so that an autoscaler can be set up while Redis is away.
func (s *scalerService) GetMetricSpec(_ context.Context, ref *externalscaler.ScaledObjectRef) (*externalscaler.GetMetricSpecResponse, error) {
	trigger, err := parseTrigger(ref)
	return &externalscaler.GetMetricSpecResponse{MetricSpecs: each(trigger.Metrics(autoscale.Size{}), specToPB)}, err
}

func (s *scalerService) GetMetrics(ctx context.Context, q *externalscaler.GetMetricsRequest) (*externalscaler.GetMetricsResponse, error) {
	trigger, err := parseTrigger(q)
	if err != nil {
		return nil, err
	}
	size, err := s.sizes.Size(ctx, callerOf(ctx).holder(trigger.Namespace), queuesOf(trigger))
	if err != nil {
		return nil, err
	}
	s.sizes.Told(queuesOf(trigger), trigger.Active(size))
	p := &externalscaler.GetMetricsResponse{}
	for _, m := range trigger.Metrics(size) {
		if name := q.GetMetricName(); name == "" || name == m.Name {
			p.MetricValues = append(p.MetricValues, valueToPB(m))
		}
	}
	if len(p.MetricValues) == 0 {
		return nil, job.Invalid("metricName", "%q is not a metric of this trigger, as GetMetricSpec lists them", job.Clip(q.GetMetricName(), 80))
	}
	return p, nil
}

// errAged ends a stream in order: KEDA opens another, maybe at another node.
var errAged = errors.New("rpc: the stream is old")

// StreamIsActive tells that workers are needed: at once, and then whenever they are again. That they are not is never
// told, only found by whoever asks. KEDA before 2.18 takes that word for an order: it ends all pods at the instant,
// even if another trigger wants some, and however little of the cooldown period has passed. Later versions ignore it.
func (s *scalerService) StreamIsActive(ref *externalscaler.ScaledObjectRef, stream grpc.ServerStreamingServer[externalscaler.IsActiveResponse]) error {
	trigger, err := parseTrigger(ref)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	w := &activity{trigger: trigger, queues: queuesOf(trigger), sizes: s.sizes, stream: stream, caller: callerOf(ctx), began: time.Now()}
	if w.caller != nil {
		if err := w.caller.allowedAll(ctx, authz.ReadQueues, trigger.Namespace, trigger.Queues); err != nil {
			return err
		}
	}
	connection := peerAddress(ctx)
	if !s.streams.enter(connection) {
		return job.ErrTooManyWatches
	}
	defer s.streams.leave(connection)
	w.checked, w.age = w.began, streamAge-rand.N(streamAge/5)
	if err := s.sizes.Watch(ctx, w.caller.holder(trigger.Namespace), w.queues, w.tell); !errors.Is(err, errAged) {
		return err
	}
	return nil
}

// activity is one stream about one trigger.
type activity struct {
	trigger autoscale.Trigger
	queues  []job.QueueKey
	sizes   Sizes
	stream  grpc.ServerStreamingServer[externalscaler.IsActiveResponse]
	caller  *caller // nil where callers are not authenticated

	began, checked   time.Time
	age              time.Duration
	answered, active bool
}

func (w *activity) tell(size autoscale.Size) error {
	now := time.Now()
	if now.Sub(w.began) > w.age {
		return errAged
	}
	if w.caller != nil && now.Sub(w.checked) >= recheckEvery {
		w.checked = now
		if err := w.recheck(); err != nil {
			return err
		}
	}
	was, first := w.active, !w.answered
	w.active, w.answered = w.trigger.Active(size), true
	w.sizes.Told(w.queues, w.active)
	switch {
	case w.active && !was:
		return w.stream.Send(&externalscaler.IsActiveResponse{Result: true})
	case first: // whoever is in between sees that the stream stands
		return w.stream.SendHeader(nil)
	}
	return nil
}

// recheck ends the stream of a caller who has lost what it began with.
func (w *activity) recheck() error {
	ctx := w.stream.Context()
	now, err := w.caller.renewed(ctx)
	if err != nil {
		return err
	}
	return now.allowedAll(ctx, authz.ReadQueues, w.trigger.Namespace, w.trigger.Queues)
}

// parseTrigger reads the metadata that a request carries, of whatever kind it is.
func parseTrigger(q any) (autoscale.Trigger, error) {
	ref, ok := q.(*externalscaler.ScaledObjectRef)
	field := "scalerMetadata."
	if m, of := q.(*externalscaler.GetMetricsRequest); of {
		ref, ok, field = m.GetScaledObjectRef(), true, "scaledObjectRef."+field
	}
	if !ok {
		return autoscale.Trigger{}, withDetails(codes.Internal, "not a request of an autoscaler").Err()
	}
	trigger, faults := autoscale.Parse(ref.GetScalerMetadata())
	var invalid job.InvalidError
	for _, f := range faults {
		invalid.Violations = append(invalid.Violations, job.Violation{Field: field + f.Key, Description: f.Text})
	}
	if len(faults) == 0 {
		invalid.Violations = wrongNames(field, trigger)
	}
	if len(invalid.Violations) > 0 {
		return autoscale.Trigger{}, &invalid
	}
	return trigger, nil
}

// wrongNames tells of a name once, even if it goes with several queues.
func wrongNames(field string, t autoscale.Trigger) (all []job.Violation) {
	for _, q := range queuesOf(t) {
		for _, v := range job.ValidateQueue(q) {
			v.Field = field + v.Field
			if !slices.ContainsFunc(all, func(w job.Violation) bool { return w.Field == v.Field }) {
				all = append(all, v)
			}
		}
	}
	return all
}

func queuesOf(t autoscale.Trigger) []job.QueueKey {
	return each(t.Queues, func(queue string) job.QueueKey { return job.QueueKey{Namespace: t.Namespace, Queue: queue} })
}

// specToPB rounds up for versions of KEDA that take whole numbers only: a target of 0
// would mean that there are never enough workers.
func specToPB(m autoscale.Metric) *externalscaler.MetricSpec {
	return &externalscaler.MetricSpec{MetricName: m.Name, TargetSize: int64(math.Ceil(m.Target)), TargetSizeFloat: m.Target}
}

func valueToPB(m autoscale.Metric) *externalscaler.MetricValue {
	return &externalscaler.MetricValue{MetricName: m.Name, MetricValue: int64(math.Ceil(m.Value)), MetricValueFloat: m.Value}
}
