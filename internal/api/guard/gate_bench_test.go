package guard

import (
	"context"
	"crypto/x509"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// policyAuthority authenticates every token as token:TOKEN.
type policyAuthority struct{ *authz.Policy }

func (policyAuthority) Generation() uint64 { return 1 }

func (policyAuthority) Token(_ context.Context, token string) (authz.Identity, error) {
	return authz.Identity{Subject: "token:" + token}, nil
}

func (policyAuthority) Certificate(*x509.Certificate) (authz.Identity, error) {
	return authz.Identity{}, authz.ErrUnauthenticated
}

func (p policyAuthority) Limits(id authz.Identity) authz.Limits { return p.LimitsOf(id) }

// BenchmarkGate is what authentication and authorization add to a call, once the
// connection has been proved.
func BenchmarkGate(b *testing.B) {
	rules := []authz.Rule{}
	for range 50 {
		rules = append(rules, authz.Rule{Role: authz.Viewer, Namespaces: []string{"elsewhere"}, Subjects: []string{"token:nobody"}})
	}
	rules = append(rules, authz.Rule{Role: authz.Editor, Namespaces: []string{"team-a"}, Subjects: []string{"token:ann"}})
	policy, err := authz.NewPolicy(rules, authz.Limits{Rate: 1e6, Burst: 1e6})
	if err != nil {
		b.Fatal(err)
	}
	g, err := New(Options{Authority: policyAuthority{policy}})
	if err != nil {
		b.Fatal(err)
	}
	_, info, err := insecure.NewCredentials().ServerHandshake(nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("authorization", "Bearer ann"))
	conn := &connection{
		AuthInfo: info, memory: connectionMemory{budget: g.open},
		unauthenticated: newUnauthenticatedConns(0, 0, func(string, error) {}),
	}
	ctx = peer.NewContext(ctx, &peer.Peer{AuthInfo: conn})
	q := &fermatav1.GetJobRequest{Name: "namespaces/team-a/jobs/ping"}
	call := &grpc.UnaryServerInfo{FullMethod: fermatav1.JobService_GetJob_FullMethodName}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.UnaryInterceptor(ctx, q, call, handler); err != nil {
			b.Fatal(err)
		}
	}
}

// connectToGate starts a server behind a gate without access control, and returns a connection to it.
func connectToGate(b *testing.B, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	b.Helper()
	g, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	options, err := g.ConnectionOptions(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	codec := UnreadCodec(grpccodec.Codec())
	server := grpc.NewServer(append(options, grpc.ForceServerCodecV2(codec))...)
	register(g.Services(server, codec, MaxRequestBytes))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

// BenchmarkConnection is a call of one connection that has 64 of them at a time, with what the gate counts of its
// bytes, calls and writes.
func BenchmarkConnection(b *testing.B) {
	conn := connectToGate(b, func(services grpc.ServiceRegistrar) {
		fermatav1.RegisterJobServiceServer(services, fermatav1.UnimplementedJobServiceServer{})
	})
	jobs, q := fermatav1.NewJobServiceClient(conn), &fermatav1.GetJobRequest{Name: "namespaces/team-a/jobs/ping"}
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := jobs.GetJob(b.Context(), q); status.Code(err) != codes.Unimplemented {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkStream is a message of a stream to a client that reads, with what the gate counts of it.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{20, 500, 4 << 10, 30 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			conn := connectToGate(b, func(services grpc.ServiceRegistrar) {
				fermatav1.RegisterEventServiceServer(services, &steadyEvents{token: strings.Repeat("x", size)})
			})
			s, err := fermatav1.NewEventServiceClient(conn).WatchEvents(b.Context(), &fermatav1.WatchEventsRequest{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Recv(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// steadyEvents send the same message until the client has had enough.
type steadyEvents struct {
	fermatav1.UnimplementedEventServiceServer
	token string
}

func (e *steadyEvents) WatchEvents(_ *fermatav1.WatchEventsRequest,
	s grpc.ServerStreamingServer[fermatav1.WatchEventsResponse]) error {
	m := &fermatav1.WatchEventsResponse{ResumeToken: e.token}
	for {
		if err := s.Send(m); err != nil {
			return err
		}
	}
}
