package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
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
)

// chartActor is somebody with the identity, and the DNS names, that the chart gives a role.
func chartActor(t *testing.T, role string, a *tlstest.Authority, names ...string) *actor {
	t.Helper()
	id := tlstest.Identity{URIs: []string{"spiffe://cluster.local/ns/jobs/blue-fermata/" + role}, DNS: names,
		Elsewhere: role == "scaler"}
	x := &actor{t: t, role: role, dir: tlstest.NewDir(t, a.Issue(id), a)}
	var err error
	if x.source, err = tlsfiles.Open(tlsfiles.Options{Files: x.files()}); err != nil {
		t.Fatal(err)
	}
	return x
}

const chartAccess = `
certificates: ["uri:spiffe://cluster.local/ns/jobs/blue-fermata/*"]
rules:
  - {subjects: ["uri:spiffe://cluster.local/ns/jobs/blue-fermata/client"], role: admin, namespaces: ["*"]}
  - {subjects: ["uri:spiffe://cluster.local/ns/jobs/blue-fermata/scaler"], role: scaler, namespaces: [reports]}
`

// TestKEDAReadsWhatTheChartWrites: the operator, given the objects that the chart renders and the Secret that they
// name, reaches nodes by the service's name, learns two metrics with their targets, receives that there is work, asks
// how much there is, and finds another node when its own stops. It never receives that there is no work: it asks.
func TestKEDAReadsWhatTheChartWrites(t *testing.T) {
	t.Parallel()
	authority := tlstest.New(t, "chart")
	nodes, people, scaler := chartActor(t, "node", authority, "blue-fermata.jobs.svc"), chartActor(t, "client",
		authority), chartActor(t, "scaler", authority)
	rules := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(rules, []byte(chartAccess), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	run := func(name string, join ...string) *node.Node {
		return startWith(t, redis.URL(), name, func(c *node.Config) {
			secured(tlsfiles.Files{}, nodes, prometheus.NewRegistry())(c)
			c.Shards, c.AccessFile = 4, rules
		}, join...)
	}
	a := run("a")
	var service atomic.Value // the address behind the service's name
	service.Store(a.GRPCAddr())
	dial := func(ctx context.Context, name string) (net.Conn, error) {
		if name != "blue-fermata.jobs.svc:7070" {
			return nil, fmt.Errorf("no such service: %s", name)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", service.Load().(string))
	}

	objects, secret := chartObjects(t), map[string]string{}
	for key, path := range map[string]string{"ca.crt": scaler.dir.CA, "tls.crt": scaler.dir.Cert,
		"tls.key": scaler.dir.Key} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		secret[key] = string(text)
	}
	object := objects["ScaledObject blue-fermata-worker-reports"]
	if len(object.Spec.Triggers) != 2 {
		t.Fatalf("%d triggers", len(object.Spec.Triggers))
	}
	activity, ended := make(chan bool, 100), make(chan error, 100)
	var operators []*operator
	want := []map[string]int64{{"s0-fermata-backlog": 16_000}, {"s1-fermata-lag-seconds": 30_000}}
	for i, metricType := range []string{"AverageValue", "Value"} {
		x := object.Spec.Triggers[i]
		if x.Type != "external-push" || x.MetricType != metricType {
			t.Errorf("trigger %d is %s by %s", i, x.Type, x.MetricType)
		}
		o := newOperator(t, object, i, objects["TriggerAuthentication "+x.Authentication.Name], secret, dial)
		if got, err := o.specs(t.Context()); err != nil || !maps.Equal(got, want[i]) {
			t.Fatalf("trigger %d: metrics %v (%v), want %v", i, got, err, want[i])
		}
		operators = append(operators, o)
		go o.watch(t.Context(), activity, ended)
	}
	backlog, lag := operators[0], operators[1]
	if value, active, err := backlog.ask(t.Context(), "s0-fermata-backlog"); err != nil || value != 0 || active {
		t.Errorf("without work: %d, active %v (%v)", value, active, err)
	}
	specStream(t, backlog)

	c := fermatav1.NewJobServiceClient(people.dial(a.GRPCAddr()))
	for i, queue := range []string{"nightly", "nightly", "adhoc"} {
		j := &fermatav1.Job{Handler: "h", Queue: queue, Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{
			Once: timestamppb.New(time.Now().Add(-2 * time.Second)),
		}}}
		if _, err := c.CreateJob(t.Context(), &fermatav1.CreateJobRequest{Parent: "namespaces/reports",
			JobId: fmt.Sprint("j", i), Job: j}); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(times int) {
		t.Helper()
		for range times {
			if !next(t, activity) {
				t.Fatal("a stream tells that there is no work")
			}
		}
	}
	heard(len(operators))
	asked := func(o *operator, metric string, good func(value int64, active bool) bool) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, metric, func(ctx context.Context) error {
			value, active, err := o.ask(ctx, metric)
			if err == nil && !good(value, active) {
				err = fmt.Errorf("%d thousandths, active %v", value, active)
			}
			return err
		})
	}
	asked(backlog, "s0-fermata-backlog", func(value int64, active bool) bool { return value == 3000 && active })
	asked(lag, "s1-fermata-lag-seconds", func(value int64, active bool) bool { return value >= 1000 && active })

	b := run("b", a.GossipAddr())
	service.Store(b.GRPCAddr())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Error(err)
	}
	for range operators {
		if err := next(t, ended); !errors.Is(err, io.EOF) {
			t.Errorf("a node that stops ends a stream with %v", err)
		}
	}
	heard(len(operators)) // by the other node
	asked(backlog, "s0-fermata-backlog", func(value int64, active bool) bool { return value == 3000 && active })

	c = fermatav1.NewJobServiceClient(people.dial(b.GRPCAddr()))
	for i := range 3 {
		if _, err := c.DeleteJob(t.Context(), &fermatav1.DeleteJobRequest{Name: fmt.Sprint("namespaces/reports/jobs/j", i)}); err != nil {
			t.Fatal(err)
		}
	}
	asked(backlog, "s0-fermata-backlog", func(value int64, active bool) bool { return value == 0 && !active })
	asked(lag, "s1-fermata-lag-seconds", func(value int64, active bool) bool { return value == 0 && !active })
	if n := len(activity); n > 0 {
		heard(n)
	}
}

// next is what comes out of a channel, within half a minute.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(redistest.Patience):
		t.Fatal("nothing has come in half a minute")
	}
	return v
}

// specStream: versions after 2.20 ask for a stream of targets too, and do without it if they hear that there is none.
func specStream(t *testing.T, o *operator) {
	t.Helper()
	s, err := o.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true},
		"/externalscaler.ExternalScaler/StreamMetricSpec")
	if err == nil {
		err = s.SendMsg(o.ref)
		if err == nil || errors.Is(err, io.EOF) {
			err = s.RecvMsg(&externalscaler.GetMetricSpecResponse{})
		}
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream of targets: %v", err)
	}
}
