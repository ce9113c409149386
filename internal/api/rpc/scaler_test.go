package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
	"github.com/fermata-io/fermata/proto/externalscaler"
)

// fakeSizes has one size for all queues; watchers hear of changes.
type fakeSizes struct {
	mu       sync.Mutex
	size     autoscale.Demand
	err      error
	asked    []job.QueueKey
	told     map[job.QueueKey]bool
	watchers map[chan autoscale.Demand]struct{}
}

func newFakeSizes() *fakeSizes {
	return &fakeSizes{told: map[job.QueueKey]bool{}, watchers: map[chan autoscale.Demand]struct{}{}}
}

func (f *fakeSizes) RecordAdvice(queues []job.QueueKey, needed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range queues {
		f.told[q] = needed
	}
}

// last is what was said of a queue last, if anything was.
func (f *fakeSizes) last(q job.QueueKey) (needed, told bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	needed, told = f.told[q]
	return needed, told
}

func (f *fakeSizes) set(s autoscale.Demand) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size = s
	for w := range f.watchers {
		w <- s
	}
}

func (f *fakeSizes) Size(_ context.Context, _ fairshare.Holder, q []job.QueueKey) (autoscale.Demand, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, q...)
	return f.size, f.err
}

func (f *fakeSizes) Watch(ctx context.Context, _ fairshare.Holder, q []job.QueueKey, tell func(autoscale.Demand) error) error {
	news := make(chan autoscale.Demand, 100)
	f.mu.Lock()
	f.asked, f.watchers[news] = append(f.asked, q...), struct{}{}
	news <- f.size
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, news)
		f.mu.Unlock()
	}()
	for {
		select {
		case s := <-news:
			if err := tell(s); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func trigger(pairs ...string) *externalscaler.ScaledObjectRef {
	texts := map[string]string{"namespace": "team-a", "queue": "mail", "targetBacklog": "10", "scalerAddress": "fermata:7070"}
	for i := 0; i+1 < len(pairs); i += 2 {
		texts[pairs[i]] = pairs[i+1]
	}
	return &externalscaler.ScaledObjectRef{Name: "workers", Namespace: "somewhere", ScalerMetadata: texts}
}

func TestScalerAnswers(t *testing.T) {
	b := serveGated(t, Options{})
	c := externalscaler.NewExternalScalerClient(b.dial(t))
	ctx := t.Context()
	spec, err := c.GetMetricSpec(ctx, trigger("targetLag", "1500ms", "targetBacklog", "2.5"))
	want := &externalscaler.GetMetricSpecResponse{MetricSpecs: []*externalscaler.MetricSpec{
		{MetricName: "fermata-backlog", TargetSize: 3, TargetSizeFloat: 2.5},
		{MetricName: "fermata-lag-seconds", TargetSize: 2, TargetSizeFloat: 1.5},
	}}
	if err != nil || !proto.Equal(spec, want) {
		t.Errorf("spec %v (%v), want %v", spec, err, want)
	}
	if len(b.sizes.asked) > 0 {
		t.Error("a spec needs no look at the queue")
	}
	active, err := c.IsActive(ctx, trigger())
	if err != nil || active.GetResult() {
		t.Errorf("an empty queue: %v (%v)", active, err)
	}
	b.sizes.set(autoscale.Demand{Waiting: 20, Running: 3, Lag: 2500 * time.Millisecond})
	if active, err = c.IsActive(ctx, trigger()); err != nil || !active.GetResult() {
		t.Errorf("a queue with a backlog: %v (%v)", active, err)
	}
	got, err := c.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: trigger("targetLag", "1s"), MetricName: "fermata-lag-seconds"})
	if err != nil || len(got.GetMetricValues()) != 1 || got.GetMetricValues()[0].GetMetricValueFloat() != 2.5 || got.GetMetricValues()[0].GetMetricValue() != 3 {
		t.Errorf("lag: %v (%v)", got, err)
	}
	got, err = c.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: trigger("queue", "mail,bulk")})
	if err != nil || len(got.GetMetricValues()) != 1 || got.GetMetricValues()[0].GetMetricValueFloat() != 23 {
		t.Errorf("all metrics: %v (%v)", got, err)
	}
	mail, bulk := job.QueueKey{Namespace: "team-a", Queue: "mail"}, job.QueueKey{Namespace: "team-a", Queue: "bulk"}
	if want := []job.QueueKey{mail, mail, mail, mail, bulk}; !slices.Equal(b.sizes.asked, want) {
		t.Errorf("asked for %v, want %v", b.sizes.asked, want)
	}
	b.sizes.err = job.ErrUnavailable
	if active, err = c.IsActive(ctx, trigger()); status.Code(err) != codes.Unavailable {
		t.Errorf("without Redis: %v (%v)", active, err)
	}
}

// TestScalingAnswersAreRecorded: in whatever way an autoscaler asks, for all queues of its trigger.
func TestScalingAnswersAreRecorded(t *testing.T) {
	b := serveGated(t, Options{})
	c := externalscaler.NewExternalScalerClient(b.dial(t))
	b.sizes.set(autoscale.Demand{Waiting: 20})
	key := func(queue string) job.QueueKey { return job.QueueKey{Namespace: "team-a", Queue: queue} }
	noted := func(queue string, want bool) {
		t.Helper()
		if needed, told := b.sizes.last(key(queue)); !told || needed != want {
			t.Errorf("%s: workers needed %v, noted %v; want %v", queue, needed, told, want)
		}
	}
	_, err := c.IsActive(t.Context(), trigger("queue", "mail,bulk"))
	noted("mail", true)
	noted("bulk", true)
	_, err2 := c.IsActive(t.Context(), trigger("activationBacklog", "20"))
	noted("mail", false)
	_, err3 := c.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: trigger("queue", "web", "activationBacklog", "20")})
	noted("web", false)
	stream, err4 := c.StreamIsActive(t.Context(), trigger("queue", "rare"))
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Error(err)
	}
	noted("rare", true)
	b.sizes.err = job.ErrUnavailable
	if _, err := c.IsActive(t.Context(), trigger("queue", "away")); err == nil {
		t.Error("answered without Redis")
	}
	if _, told := b.sizes.last(key("away")); told {
		t.Error("what nobody could count was noted")
	}
}

// TestScalerRefusesByField: who misspells a key in a ScaledObject reads in KEDA's log which.
func TestScalerRefusesByField(t *testing.T) {
	b := serveGated(t, Options{})
	c := externalscaler.NewExternalScalerClient(b.dial(t))
	ref := trigger("targetBacklog", "many", "horizont", "1m")
	_, err := c.IsActive(t.Context(), ref)
	_, err2 := c.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: ref})
	_, err3 := c.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{ScaledObjectRef: trigger(), MetricName: "s0-fermata-backlog"})
	_, err4 := c.IsActive(t.Context(), trigger("queue", "not a name,neither is this"))
	_, err5 := c.GetMetrics(t.Context(), &externalscaler.GetMetricsRequest{})
	stream, err := streamError(t, c, ref), err
	for _, tt := range []struct {
		err    error
		fields []string
	}{
		{err, []string{"scalerMetadata.targetBacklog", "scalerMetadata.horizont"}},
		{stream, []string{"scalerMetadata.targetBacklog", "scalerMetadata.horizont"}},
		{err2, []string{"scaledObjectRef.scalerMetadata.targetBacklog", "scaledObjectRef.scalerMetadata.horizont"}},
		{err3, []string{"metricName"}},
		{err4, []string{"scalerMetadata.queue"}},
		{err5, []string{"scaledObjectRef.scalerMetadata.queue", "scaledObjectRef.scalerMetadata.targetBacklog"}},
	} {
		s := status.Convert(tt.err)
		if s.Code() != codes.InvalidArgument || len(s.Details()) != 1 {
			t.Errorf("%v: %v", tt.fields, tt.err)
			continue
		}
		var fields []string
		for _, v := range s.Details()[0].(*errdetails.BadRequest).GetFieldViolations() {
			fields = append(fields, v.GetField())
		}
		if !slices.Equal(fields, tt.fields) {
			t.Errorf("fields %q, want %q", fields, tt.fields)
		}
	}
}

// standing waits until a stream is answered.
func standing(s grpc.ServerStreamingClient[externalscaler.IsActiveResponse]) error {
	header, err := s.Header()
	if err == nil && header == nil { // it has ended without one
		_, err = s.Recv()
	}
	return err
}

func streamError(t *testing.T, c externalscaler.ExternalScalerClient, ref *externalscaler.ScaledObjectRef) error {
	t.Helper()
	s, err := c.StreamIsActive(t.Context(), ref)
	if err != nil {
		return err
	}
	_, err = s.Recv()
	return err
}

// activityStream is the server's side of a stream, inside a bubble of time.
type activityStream struct {
	grpc.ServerStream
	ctx     context.Context
	headers int
	sent    []bool
}

func (s *activityStream) Context() context.Context { return s.ctx }
func (s *activityStream) SendHeader(metadata.MD) error {
	s.headers++
	return nil
}
func (s *activityStream) Send(m *externalscaler.IsActiveResponse) error {
	s.sent = append(s.sent, m.GetResult())
	return nil
}

// TestStreamTellsOfWorkAndEndsInOrder: it tells when there is work, once each time. That there is none is no word of a
// stream.
func TestStreamTellsOfWorkAndEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sizes := newFakeSizes()
		s := &activityStream{ctx: t.Context()}
		done := make(chan error, 1)
		go func() { done <- (&scalerService{sizes: sizes}).StreamIsActive(trigger("horizon", "1m"), s) }()
		for _, size := range []autoscale.Demand{
			{}, {Ahead: true, Next: 2 * time.Minute}, {Ahead: true, Next: time.Minute}, {Waiting: 1}, {Waiting: 5}, {Running: 1}, {}, {}, {Waiting: 1},
		} {
			synctest.Wait()
			sizes.set(size)
		}
		synctest.Wait()
		if want := []bool{true, true}; !slices.Equal(s.sent, want) || s.headers != 1 {
			t.Errorf("sent %v after %d headers, want %v after one", s.sent, s.headers, want)
		}
		time.Sleep(guard.StreamAge)
		sizes.set(autoscale.Demand{})
		if err := <-done; err != nil {
			t.Errorf("an old stream: %v, want an end in order", err)
		}
	})
}

// TestStreamEndsWithItsRole: what was allowed at the beginning of a stream is looked at again.
func TestStreamEndsWithItsRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := newAuthority(t, authz.Limits{}, allow(authz.Scaler, "team-a", "keda"))
		b := serveGated(t, Options{Authority: authority})
		s, err := externalscaler.NewExternalScalerClient(b.dial(t)).StreamIsActive(as(t.Context(), "keda"), trigger())
		if err != nil {
			t.Fatal(err)
		}
		if err := standing(s); err != nil {
			t.Fatal(err)
		}
		time.Sleep(guard.RecheckInterval)
		b.sizes.set(autoscale.Demand{Waiting: 1})
		if m, err := s.Recv(); err != nil || !m.GetResult() {
			t.Fatalf("%v (%v)", m, err)
		}
		authority.revoke("keda")
		time.Sleep(guard.RecheckInterval)
		b.sizes.set(autoscale.Demand{})
		if m, err := s.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("told %v (%v) to somebody who may not hear it any more", m, err)
		}
	})
}

// TestStreamsLeaveRoomForCalls: KEDA has one connection for all that it scales.
func TestStreamsLeaveRoomForCalls(t *testing.T) {
	b := serveGated(t, Options{})
	c := externalscaler.NewExternalScalerClient(b.dial(t))
	ctx, cancel := context.WithCancel(t.Context())
	for range streamsPerConnection {
		s, err := c.StreamIsActive(ctx, trigger())
		if err != nil {
			t.Fatal(err)
		}
		if err := standing(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := streamError(t, c, trigger()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one stream too many: %v", err)
	}
	if _, err := c.IsActive(t.Context(), trigger()); err != nil {
		t.Errorf("a call beside the streams: %v", err)
	}
	cancel()
	for {
		s, err := c.StreamIsActive(t.Context(), trigger())
		if err != nil {
			t.Fatal(err)
		}
		if err = standing(s); err == nil {
			break
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
}

// TestMessagesAreKEDAs: names, numbers and types are those of KEDA's own description, so that its operator
// finds what it looks for.
func TestMessagesAreKEDAs(t *testing.T) {
	want := map[string]string{
		"ScaledObjectRef":       "name=1 string, namespace=2 string, scalerMetadata=3 map<string, string>",
		"IsActiveResponse":      "result=1 bool",
		"GetMetricSpecResponse": "metricSpecs=1 repeated MetricSpec",
		"MetricSpec":            "metricName=1 string, targetSize=2 int64, targetSizeFloat=3 double",
		"GetMetricsRequest":     "scaledObjectRef=1 ScaledObjectRef, metricName=2 string",
		"GetMetricsResponse":    "metricValues=1 repeated MetricValue",
		"MetricValue":           "metricName=1 string, metricValue=2 int64, metricValueFloat=3 double",
		"IsActive":              "ScaledObjectRef returns IsActiveResponse",
		"StreamIsActive":        "ScaledObjectRef returns stream IsActiveResponse",
		"GetMetricSpec":         "ScaledObjectRef returns GetMetricSpecResponse",
		"GetMetrics":            "GetMetricsRequest returns GetMetricsResponse",
	}
	file := externalscaler.File_externalscaler_externalscaler_proto
	got := map[string]string{}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		var fields []string
		for k := range m.Fields().Len() {
			f := m.Fields().Get(k)
			fields = append(fields, fmt.Sprintf("%s=%d %s", f.Name(), f.Number(), typeOf(f)))
		}
		got[string(m.Name())] = strings.Join(fields, ", ")
	}
	service := file.Services().Get(0)
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		stream := ""
		if m.IsStreamingServer() {
			stream = "stream "
		}
		got[string(m.Name())] = fmt.Sprintf("%s returns %s%s", m.Input().Name(), stream, m.Output().Name())
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if service.FullName() != "externalscaler.ExternalScaler" {
		t.Errorf("the service is %s", service.FullName())
	}
}

func typeOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s, %s>", typeOf(f.MapKey()), typeOf(f.MapValue()))
	case f.Message() != nil && f.IsList():
		return "repeated " + string(f.Message().Name())
	case f.Message() != nil:
		return string(f.Message().Name())
	}
	return f.Kind().String()
}
