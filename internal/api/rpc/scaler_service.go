package rpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
	"github.com/fermata-io/fermata/proto/externalscaler"
)

// Sizes counts the work in a set of queues of the whole cluster. Its errors are those of package job, or mean that too
// many queues are requested.
type Sizes interface {
	Size(ctx context.Context, who fairshare.Holder, queues []job.QueueKey) (autoscale.Demand, error)
	// Watch calls tell repeatedly until ctx ends or tell fails. It returns nil when the node stops.
	Watch(ctx context.Context, who fairshare.Holder, queues []job.QueueKey, tell func(autoscale.Demand) error) error
	// RecordAdvice records whether workers of the queues are needed.
	RecordAdvice(queues []job.QueueKey, needed bool)
}

// scalerService is the interface by which KEDA asks. What KEDA calls the metadata of a
// trigger is a [autoscale.Trigger].
type scalerService struct {
	externalscaler.UnimplementedExternalScalerServer
	sizes   Sizes
	streams streamCounter
}

// streamsPerConnection leaves room on a connection, which KEDA has one of, for calls that are no streams: without
// it they would wait for ever. Whose stream is refused is asked for by calls.
const streamsPerConnection = 200

// streamCounter counts open streams by connection.
type streamCounter struct {
	mu sync.Mutex
	by map[string]int
}

func (c *streamCounter) addStream(connection string) bool {
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

func (c *streamCounter) removeStream(connection string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[connection]--
	if c.by[connection] == 0 {
		delete(c.by, connection)
	}
}

func (s *scalerService) IsActive(ctx context.Context,
	ref *externalscaler.ScaledObjectRef) (*externalscaler.IsActiveResponse, error) {
	trigger, err := convert.ParseTrigger(ref)
	if err != nil {
		return nil, err
	}
	size, err := s.sizes.Size(ctx, guard.CallerFrom(ctx).ShareHolder(trigger.Namespace), convert.TriggerQueues(trigger))
	if err != nil {
		return nil, err
	}
	active := trigger.Active(size)
	s.sizes.RecordAdvice(convert.TriggerQueues(trigger), active)
	return &externalscaler.IsActiveResponse{Result: active}, nil
}

// GetMetricSpec calls no other system, so that an autoscaler can be set up while Redis is away.
func (s *scalerService) GetMetricSpec(_ context.Context,
	ref *externalscaler.ScaledObjectRef) (*externalscaler.GetMetricSpecResponse, error) {
	trigger, err := convert.ParseTrigger(ref)
	specs := convert.Map(trigger.Metrics(autoscale.Demand{}), convert.MetricSpecToPB)
	return &externalscaler.GetMetricSpecResponse{MetricSpecs: specs}, err
}

func (s *scalerService) GetMetrics(ctx context.Context,
	q *externalscaler.GetMetricsRequest) (*externalscaler.GetMetricsResponse, error) {
	trigger, err := convert.ParseTrigger(q)
	if err != nil {
		return nil, err
	}
	size, err := s.sizes.Size(ctx, guard.CallerFrom(ctx).ShareHolder(trigger.Namespace), convert.TriggerQueues(trigger))
	if err != nil {
		return nil, err
	}
	s.sizes.RecordAdvice(convert.TriggerQueues(trigger), trigger.Active(size))
	p := &externalscaler.GetMetricsResponse{}
	for _, m := range trigger.Metrics(size) {
		if name := q.GetMetricName(); name == "" || name == m.Name {
			p.MetricValues = append(p.MetricValues, convert.MetricValueToPB(m))
		}
	}
	if len(p.MetricValues) == 0 {
		return nil, job.Invalid("metricName", "%q is not a metric of this trigger, as GetMetricSpec lists them",
			job.Clip(q.GetMetricName(), 80))
	}
	return p, nil
}

// errStreamAged ends a stream in order: KEDA opens another, maybe at another node.
var errStreamAged = errors.New("rpc: the stream is old")

// StreamIsActive sends true when workers are needed: at once, and then whenever they are needed again. It never sends
// false: KEDA before 2.18 would remove all pods at once, even if another trigger needs some and before the end of the
// cooldown period. Later versions ignore false. KEDA polls IsActive to learn that no workers are needed.
func (s *scalerService) StreamIsActive(ref *externalscaler.ScaledObjectRef,
	stream grpc.ServerStreamingServer[externalscaler.IsActiveResponse]) error {
	trigger, err := convert.ParseTrigger(ref)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	w := &activity{
		trigger: trigger, queues: convert.TriggerQueues(trigger), sizes: s.sizes, stream: stream,
		caller: guard.CallerFrom(ctx), began: time.Now(),
	}
	if w.caller != nil {
		if err := w.caller.AuthorizeQueues(ctx, authz.ReadQueues, trigger.Namespace, trigger.Queues); err != nil {
			return err
		}
	}
	connection := guard.PeerAddress(ctx)
	if !s.streams.addStream(connection) {
		return job.ErrTooManyWatches
	}
	defer s.streams.removeStream(connection)
	w.checked, w.age = w.began, guard.StreamAge-rand.N(guard.StreamAge/5)
	err = s.sizes.Watch(ctx, w.caller.ShareHolder(trigger.Namespace), w.queues, w.reportSize)
	if !errors.Is(err, errStreamAged) {
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
	caller  *guard.Caller // nil where callers are not authenticated

	began, checked   time.Time
	age              time.Duration
	answered, active bool
}

func (w *activity) reportSize(size autoscale.Demand) error {
	now := time.Now()
	if now.Sub(w.began) > w.age {
		return errStreamAged
	}
	if w.caller != nil && now.Sub(w.checked) >= guard.RecheckInterval {
		w.checked = now
		if err := w.reauthorize(); err != nil {
			return err
		}
	}
	was, first := w.active, !w.answered
	w.active, w.answered = w.trigger.Active(size), true
	w.sizes.RecordAdvice(w.queues, w.active)
	switch {
	case w.active && !was:
		return w.stream.Send(&externalscaler.IsActiveResponse{Result: true})
	case first: // shows proxies that the stream is open
		return w.stream.SendHeader(nil)
	}
	return nil
}

// reauthorize ends the stream of a caller who has lost what it began with.
func (w *activity) reauthorize() error {
	ctx := w.stream.Context()
	now, err := w.caller.Reauthenticate(ctx)
	if err != nil {
		return err
	}
	return now.AuthorizeQueues(ctx, authz.ReadQueues, w.trigger.Namespace, w.trigger.Queues)
}
