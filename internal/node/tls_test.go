package node_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

const domain = "spiffe://fermata.example/"

// actor is somebody with a certificate in files.
type actor struct {
	t      *testing.T
	role   string
	dir    *tlstest.Dir
	source *tlsfiles.Source // of workers and clients
}

func newActor(t *testing.T, role string, a *tlstest.Authority) *actor {
	t.Helper()
	x := &actor{t: t, role: role, dir: tlstest.NewDir(t, a.Issue(tlstest.Identity{URIs: []string{domain + role}}), a)}
	var err error
	if x.source, err = tlsfiles.Open(tlsfiles.Options{Files: x.files()}); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *actor) files() tlsfiles.Files {
	return tlsfiles.Files{Cert: x.dir.Cert, Key: x.dir.Key, Authorities: x.dir.CA}
}

// renew puts another certificate in place, that ends at a time of its own.
func (x *actor) renew(end time.Time, by *tlstest.Authority, trusted ...*tlstest.Authority) {
	x.t.Helper()
	x.dir.Replace(by.Issue(tlstest.Identity{URIs: []string{domain + x.role}, NotAfter: end}), trusted...)
}

// dial connects to a listener; the connection ends with the test.
func (x *actor) dial(addr string) *grpc.ClientConn { return dialWith(x.t, addr, x.source.Client()) }

func dialWith(t *testing.T, addr string, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// secured makes a node speak TLS in all directions.
func secured(redis tlsfiles.Files, x *actor, reg *prometheus.Registry) func(*node.Config) {
	return func(c *node.Config) {
		c.TLS, c.PeerTLS, c.RedisTLS = x.files(), x.files(), redis
		// A machine that is busy with handshakes is not what is tested.
		c.Redis.DialTimeout, c.Redis.ReadTimeout, c.Redis.PoolTimeout = 10*time.Second, 10*time.Second, 10*time.Second
		c.Registerer, c.Gatherer = reg, reg
	}
}

// inForce waits until every certificate of a node ends at this time.
func inForce(t *testing.T, reg *prometheus.Registry, end time.Time) {
	t.Helper()
	redistest.Eventually(t, redistest.Patience, "the new files", func(context.Context) error {
		families, err := reg.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "fermata_certificate_expiry_timestamp_seconds" &&
					m.GetLabel()[0].GetValue() != "redis" && int64(m.GetGauge().GetValue()) != end.Unix() {
					return fmt.Errorf("%v", m)
				}
			}
		}
		return nil
	})
}

// isAskedLater tells whether a node was reached and too busy, on a slow machine: it names
// a delay, which no failed handshake does.
func isAskedLater(err error) bool {
	for _, d := range status.Convert(err).Details() {
		if _, named := d.(*errdetails.RetryInfo); named {
			return true
		}
	}
	return false
}

// TestAClusterLivesThroughNewCertificates replaces the certificates of two nodes, a
// worker and a client, and then their authority, while jobs run and calls are made,
// some over a connection that stays and some over new ones.
func TestAClusterLivesThroughNewCertificates(t *testing.T) {
	t.Parallel()
	first, second, ofRedis := tlstest.New(t, "first"), tlstest.New(t, "second"), tlstest.New(t, "redis")
	redisDir := tlstest.NewDir(t, ofRedis.Issue(tlstest.Identity{Name: "redis"}), ofRedis)
	redis := redistest.Start(t, redistest.WithTLS(redistest.TLS{
		Cert: redisDir.Cert, Key: redisDir.Key, CA: redisDir.CA,
		Client: ofRedis.Client(ofRedis.Issue(tlstest.Identity{})),
	}))
	redisFiles := tlsfiles.Files{Cert: redisDir.Cert, Key: redisDir.Key, Authorities: redisDir.CA}
	nodes, workers, clients := newActor(t, "node", first), newActor(t, "worker", first), newActor(t, "client", first)
	regs := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	a := startWith(t, redis.URL(), "a", secured(redisFiles, nodes, regs[0]))
	b := startWith(t, redis.URL(), "b", secured(redisFiles, nodes, regs[1]), a.GossipAddr())
	var ran atomic.Int64
	workWith(t, worker.Options{
		Addresses: []string{b.GRPCAddr()}, Slots: 4,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(workers.source.Client())},
	}, map[string]func(context.Context, *worker.Task) error{"h": func(context.Context,
		*worker.Task) error {
		ran.Add(1)
		return nil
	}})
	c := fermatav1.NewJobServiceClient(clients.dial(a.GRPCAddr()))
	create(t, c, "j", intervalJob(100*time.Millisecond, "h"))

	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int64
	var busy sync.WaitGroup
	get := func(c fermatav1.JobServiceClient) {
		switch _, err := c.GetJob(ctx, &fermatav1.GetJobRequest{Name: "namespaces/default/jobs/j"}); {
		case ctx.Err() != nil || isAskedLater(err):
		case err != nil:
			t.Errorf("a call failed: %v", err)
			cancel()
		default:
			calls.Add(1)
		}
	}
	busy.Go(func() {
		for ctx.Err() == nil {
			get(c)
			conn, err := grpc.NewClient("passthrough:///"+b.GRPCAddr(),
				grpc.WithTransportCredentials(clients.source.Client()))
			if err != nil {
				t.Error(err)
				return
			}
			get(fermatav1.NewJobServiceClient(conn))
			_ = conn.Close()
		}
	})
	stranger := tlstest.NewDir(t, first.Issue(tlstest.Identity{URIs: []string{domain + "client"}}), second)
	for i, step := range []struct {
		by      *tlstest.Authority
		trusted []*tlstest.Authority
	}{{first, []*tlstest.Authority{first, second}}, {second, []*tlstest.Authority{first, second}}, {second,
		[]*tlstest.Authority{second}}} {
		end := time.Now().Add(time.Duration(30+i) * time.Hour).Truncate(time.Second)
		for _, x := range []*actor{nodes, workers, clients} {
			x.renew(end, step.by, step.trusted...)
		}
		for _, reg := range regs {
			inForce(t, reg, end)
		}
		for _, x := range []*actor{workers, clients} {
			redistest.Eventually(t, redistest.Patience, x.role+"'s new files", func(context.Context) error {
				if got := x.source.ReloadIfDue(); !got.Equal(end) {
					return fmt.Errorf("until %v", got)
				}
				return nil
			})
		}
		called, done := calls.Load(), ran.Load()
		redistest.Eventually(t, redistest.Patience, "calls and runs go on", func(context.Context) error {
			if calls.Load() < called+4 && ctx.Err() == nil || ran.Load() < done+2 {
				return fmt.Errorf("%d calls, %d runs", calls.Load()-called, ran.Load()-done)
			}
			return nil
		})
	}
	cancel()
	busy.Wait()
	list, err := fermatav1.NewClusterServiceClient(clients.dial(a.GRPCAddr())).ListNodes(t.Context(),
		&fermatav1.ListNodesRequest{})
	if err != nil || len(list.GetNodes()) != 2 || list.GetNodes()[0].GetUnreachable() ||
		list.GetNodes()[1].GetUnreachable() {
		t.Errorf("%v, %v", list, err)
	}
	old, err := tlsfiles.Open(tlsfiles.Options{Files: tlsfiles.Files{Cert: stranger.Cert, Key: stranger.Key,
		Authorities: stranger.CA}})
	if err != nil {
		t.Fatal(err)
	}
	if err := getJob(t, dialWith(t, a.GRPCAddr(), old.Client())); status.Code(err) != codes.Unavailable {
		t.Errorf("a certificate of the first authority still works: %v", err)
	}
}

func getJob(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	_, err := fermatav1.NewJobServiceClient(conn).GetJob(t.Context(),
		&fermatav1.GetJobRequest{Name: "namespaces/default/jobs/none"})
	return err
}

// TestListenersKeepApart tries what somebody inside could: a worker that asks for what
// only nodes may, on either listener; and what somebody outside could.
func TestListenersKeepApart(t *testing.T) {
	ours := tlstest.New(t, "ours")
	x, reg := newActor(t, "node", ours), prometheus.NewRegistry()
	n := startWith(t, redistest.Start(t).URL(), "a", func(c *node.Config) {
		secured(tlsfiles.Files{}, x, reg)(c)
		c.RedisTLS = tlsfiles.Files{}
	})
	bad := newActor(t, "worker", ours)
	describe := func(conn *grpc.ClientConn) error {
		_, err := fermatav1.NewPeerServiceClient(conn).DescribeNode(t.Context(), &fermatav1.DescribeNodeRequest{})
		return err
	}
	if err := describe(bad.dial(n.GRPCAddr())); status.Code(err) != codes.Unimplemented {
		t.Errorf("a worker asks a node as a node does: %v", err)
	}
	if err := describe(bad.dial(n.PeerAddr())); status.Code(err) != codes.Unavailable {
		t.Errorf("a worker at the nodes' listener: %v", err)
	}
	if err := describe(x.dial(n.PeerAddr())); err != nil {
		t.Errorf("a node at the nodes' listener: %v", err)
	}
	if err := getJob(t, x.dial(n.PeerAddr())); status.Code(err) != codes.Unimplemented {
		t.Errorf("jobs at the nodes' listener: %v", err)
	}
	for what, c := range map[string]credentials.TransportCredentials{
		"plain text": insecure.NewCredentials(), "nobody": credentials.NewTLS(ours.Client(tlstest.Pair{})),
	} {
		for _, addr := range []string{n.GRPCAddr(), n.PeerAddr()} {
			if err := getJob(t, dialWith(t, addr, c)); status.Code(err) != codes.Unavailable {
				t.Errorf("%s at %s: %v", what, addr, err)
			}
		}
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(bad.dial(n.GRPCAddr())).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("the services are described: %v", err)
	}
}
