package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

const scalerAccess = `
certificates: ["uri:spiffe://fermata.example/*"]
rules:
  - {subjects: ["uri:spiffe://fermata.example/client"], role: admin, namespaces: ["*"]}
  - {subjects: ["uri:spiffe://fermata.example/worker"], role: worker, namespaces: [default]}
  - {subjects: ["uri:spiffe://fermata.example/scaler"], role: scaler, namespaces: [default]}
`

// keda asks one node about one queue, as KEDA's operator does: with a client certificate, over one connection.
type keda struct {
	t      *testing.T
	client externalscaler.ExternalScalerClient
	ref    *externalscaler.ScaledObjectRef
}

func asKEDA(t *testing.T, x *actor, n *node.Node, metadata map[string]string) keda {
	metadata["scalerAddress"], metadata["queue"] = n.GRPCAddr(), "mail"
	return keda{t, externalscaler.NewExternalScalerClient(x.dial(n.GRPCAddr())),
		&externalscaler.ScaledObjectRef{Name: "mail", Namespace: "jobs", ScalerMetadata: metadata}}
}

// is waits until a metric has a value, and the queue is as active as it should be.
func (k keda) is(value float64, active bool) {
	k.t.Helper()
	redistest.Eventually(k.t, redistest.Patience, fmt.Sprintf("a backlog of %v", value), func(ctx context.Context) error {
		m, err := k.client.GetMetrics(ctx, &externalscaler.GetMetricsRequest{ScaledObjectRef: k.ref,
			MetricName: "fermata-backlog"})
		if err != nil {
			return err
		}
		a, err := k.client.IsActive(ctx, k.ref)
		if got := m.GetMetricValues()[0].GetMetricValueFloat(); err == nil &&
			(got != value || a.GetResult() != active) {
			err = fmt.Errorf("%v, active %v", got, a.GetResult())
		}
		return err
	})
}

// watch opens a stream, and waits until it is answered.
func (k keda) watch() grpc.ServerStreamingClient[externalscaler.IsActiveResponse] {
	k.t.Helper()
	s, err := k.client.StreamIsActive(k.t.Context(), k.ref)
	if err != nil {
		k.t.Fatal(err)
	}
	if header, err := s.Header(); err != nil || header == nil {
		k.t.Fatalf("a stream is not answered: %v", err)
	}
	return s
}

func hearsOfWork(t *testing.T, s grpc.ServerStreamingClient[externalscaler.IsActiveResponse]) {
	t.Helper()
	if m, err := s.Recv(); err != nil || !m.GetResult() {
		t.Fatalf("the stream says %v (%v), want work", m.GetResult(), err)
	}
}

// TestKEDAScalesByAnyNode: two nodes share the shards, each tells of all of them, by the certificate of an autoscaler
// that may see nothing else. Streams tell when work comes, and nothing else; a node that stops ends them in order.
func TestKEDAScalesByAnyNode(t *testing.T) {
	t.Parallel()
	authority := tlstest.New(t, "ours")
	nodes, clients, workers, scaler := newActor(t, "node", authority), newActor(t, "client", authority), newActor(t,
		"worker", authority), newActor(t, "scaler", authority)
	redis := redistest.Start(t)
	rules := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(rules, []byte(scalerAccess), 0o600); err != nil {
		t.Fatal(err)
	}
	secure := func(c *node.Config) {
		reg := prometheus.NewRegistry()
		secured(tlsfiles.Files{}, nodes, reg)(c)
		c.Shards, c.AccessFile = 8, rules
	}
	a := startWith(t, redis.URL(), "a", secure)
	b := startWith(t, redis.URL(), "b", secure, a.GossipAddr())
	c := fermatav1.NewJobServiceClient(clients.dial(a.GRPCAddr()))
	cluster := fermatav1.NewClusterServiceClient(clients.dial(a.GRPCAddr()))
	redistest.Eventually(t, redistest.Patience, "both nodes to hold shards", func(ctx context.Context) error {
		shards, err := cluster.ListShards(ctx, &fermatav1.ListShardsRequest{})
		holders := map[string]int{}
		for _, s := range shards.GetShards() {
			holders[s.GetHolder()]++
		}
		if err == nil && (holders["a"] == 0 || holders["b"] == 0 || holders[""] > 0) {
			err = fmt.Errorf("%v", holders)
		}
		return err
	})

	viaA := asKEDA(t, scaler, a, map[string]string{"targetBacklog": "5"})
	viaB := asKEDA(t, scaler, b, map[string]string{"targetBacklog": "5", "horizon": "0s"})
	ahead, now := viaA.watch(), viaB.watch()
	spec, err := viaA.client.GetMetricSpec(t.Context(), viaA.ref)
	if err != nil || len(spec.GetMetricSpecs()) != 1 || spec.GetMetricSpecs()[0].GetTargetSizeFloat() != 5 {
		t.Errorf("spec %v (%v)", spec, err)
	}
	// In half a minute something is due: only a watch that looks ahead reports it.
	create(t, c, "later", &fermatav1.Job{Handler: "h", Queue: "mail",
		Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{
			Once: timestamppb.New(time.Now().Add(30 * time.Second)),
		}}})
	hearsOfWork(t, ahead)
	viaA.is(0, true)
	viaB.is(0, false)
	if _, err := c.DeleteJob(t.Context(), &fermatav1.DeleteJobRequest{Name: name("later")}); err != nil {
		t.Fatal(err)
	}
	viaA.is(0, false)
	for i := range 20 { // over all shards
		create(t, c, fmt.Sprint("j", i), &fermatav1.Job{Handler: "h", Queue: "mail",
			Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{
				Once: timestamppb.New(time.Now().Add(-time.Second)),
			}}})
	}
	hearsOfWork(t, now)
	viaA.is(20, true)
	viaB.is(20, true)

	// Runs that are with workers keep the pool alive; their end lets it go.
	release := make(chan struct{})
	workWith(t, worker.Options{
		Addresses: []string{b.GRPCAddr()}, Queues: []string{"mail"}, Slots: 30,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(workers.source.Client())},
	}, map[string]func(context.Context, *worker.Task) error{"h": func(ctx context.Context, _ *worker.Task) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}})
	waiting := asKEDA(t, scaler, a, map[string]string{"targetBacklog": "5", "countRunning": "false"})
	waiting.is(0, true)
	viaA.is(20, true)
	close(release)
	viaA.is(0, false)

	_, err = fermatav1.NewJobServiceClient(scaler.dial(a.GRPCAddr())).GetJob(t.Context(),
		&fermatav1.GetJobRequest{Name: name("j0")})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("an autoscaler reads a job: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Error(err)
	}
	for err = nil; err == nil; {
		var m *externalscaler.IsActiveResponse
		m, err = ahead.Recv()
		if err == nil && !m.GetResult() {
			t.Error("a stream tells that there is no work")
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the stream of a node that stops ends with %v", err)
	}
}
