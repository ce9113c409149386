package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/sessiontest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// workAs opens the stream of a worker that has been welcomed.
func (b *gated) workAs(t *testing.T, token, worker string, live ...string) sessiontest.Stream {
	t.Helper()
	ctx := t.Context()
	if b.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.patience)
		t.Cleanup(cancel)
	}
	s, err := fermatav1.NewWorkerServiceClient(b.dial(t)).Work(as(ctx, token))
	if err != nil {
		t.Fatal(err)
	}
	h := sessiontest.GoodHello()
	h.WorkerId, h.LiveLeaseIds = worker, live
	sessiontest.SayHello(t, s, h)
	if m, err := s.Recv(); err != nil || m.GetWelcome() == nil {
		t.Fatalf("%v %v", m, err)
	}
	return s
}

func give(t *testing.T, b *gated, s sessiontest.Stream, id string) (sealed string) {
	t.Helper()
	if err := b.sessions.Out.Send(job.Assignments{{LeaseID: id, Record: &job.Record{Definition: &job.Definition{Key: key}}}}); err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv()
	if err != nil || len(m.GetLeases().GetLeases()) != 1 {
		t.Fatalf("%v %v", m, err)
	}
	return m.GetLeases().GetLeases()[0].GetLeaseId()
}

func report(t *testing.T, s sessiontest.Stream, ids ...string) []*fermatav1.ResultAck {
	t.Helper()
	r := &fermatav1.Results{}
	for _, id := range ids {
		r.Results = append(r.Results, &fermatav1.Result{LeaseId: id, Outcome: fermatav1.Result_OUTCOME_SUCCEEDED})
	}
	if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: r}}); err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m.GetResultAcks().GetAcks()
}

// TestStolenLeases has a worker with a good identity name leases that another got.
func TestStolenLeases(t *testing.T) {
	const lease = "1@default/ping"
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Worker, "*", "ann", "eve"))})
	b.patience = 20 * time.Second
	ann := b.workAs(t, "ann", "w-1")
	sealed := give(t, b, ann, lease)
	if sealed == lease || !strings.HasSuffix(sealed, "."+lease) {
		t.Fatalf("lease goes out as %q", sealed)
	}
	thieves := map[string]sessiontest.Stream{
		"another identity, another worker": b.workAs(t, "eve", "w-2"),
		"another identity, the same id":    b.workAs(t, "eve", "w-1"),
		"another worker of the identity":   b.workAs(t, "ann", "w-2"),
	}
	tries := []string{sealed, lease, "." + lease, strings.Repeat("A", 22) + "." + lease, strings.ToLower(sealed)}
	for name, s := range thieves {
		for _, m := range []*fermatav1.WorkRequest{
			{Message: &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: tries}}},
			{Message: &fermatav1.WorkRequest_Returned{Returned: &fermatav1.Returned{LeaseIds: tries}}},
		} {
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		// The answer is final, so that nobody repeats it.
		acks := report(t, s, tries...)
		if len(acks) != len(tries) || slices.ContainsFunc(acks, func(a *fermatav1.ResultAck) bool { return a.GetStatus() != fermatav1.ResultAck_STATUS_STALE }) {
			t.Errorf("%s: %v", name, acks)
		}
		for range 3 {
			if e := <-b.sessions.Reported; e != "started " && e != "returned " {
				if !strings.HasPrefix(e, "result") {
					continue
				}
				t.Errorf("%s: the session hears %q", name, e)
			}
			if len(b.sessions.Reported) == 0 {
				break
			}
		}
	}
	if got := testutil.ToFloat64(b.foreign(t)); got != float64(3*len(thieves)*len(tries)) {
		t.Errorf("%v foreign leases counted", got)
	}
	// A worker that says it has the lease already does not get it either.
	eve, err := fermatav1.NewWorkerServiceClient(b.dial(t)).Work(as(t.Context(), "eve"))
	if err != nil {
		t.Fatal(err)
	}
	h := sessiontest.GoodHello()
	h.LiveLeaseIds = []string{sealed}
	sessiontest.SayHello(t, eve, h)
	if _, err := eve.Recv(); err != nil {
		t.Fatal(err)
	}
	if m, err := eve.Recv(); err != nil || m.GetCancel().GetReason() != fermatav1.Cancel_REASON_LEASE_LOST || !slices.Equal(m.GetCancel().GetLeaseIds(), []string{sealed}) {
		t.Errorf("%v %v", m, err)
	}
	if b.sessions.Hello.Identity != "token:eve" || len(b.sessions.Hello.Live) != 0 {
		t.Errorf("the engine hears %+v", b.sessions.Hello)
	}
	// Whose lease it is may still report it, after a cut as well.
	again := b.workAs(t, "ann", "w-1", sealed)
	if b.sessions.Hello.Identity != "token:ann" || !slices.Equal(b.sessions.Hello.Live, []string{lease}) {
		t.Errorf("the engine hears %+v", b.sessions.Hello)
	}
	if err := again.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: &fermatav1.Results{
		Results: []*fermatav1.Result{{LeaseId: sealed, Outcome: fermatav1.Result_OUTCOME_SUCCEEDED}},
	}}}); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case e := <-b.sessions.Reported:
			if strings.HasPrefix(e, "result "+lease+" ") {
				return
			}
		case <-time.After(patience):
			t.Fatal("the result of the worker that has the lease did not arrive")
		}
	}
}

func (b *gated) foreign(t *testing.T) prometheus.Collector {
	t.Helper()
	return registered(t, b.registry, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fermata_access_foreign_leases_total", Help: "Leases that workers named without having received them.",
	}))
}

// TestRevokedWorkerLosesItsStream and the next run in false time, in which a stream
// is looked at every ten seconds.
func TestRevokedWorkerLosesItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := newAuthority(t, authz.Limits{}, allow(authz.Worker, "*", "w"))
		b := serveGated(t, Options{Authority: authority})
		s := b.workAs(t, "w", "w-1")
		time.Sleep(3 * guard.RecheckInterval)
		b.sessions.Want(t)
		authority.revoke("w")
		began := time.Now()
		if err := sessiontest.ReadToEnd(t, s); status.Code(err) != codes.Unauthenticated || time.Since(began) > guard.RecheckInterval {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		b.sessions.Want(t, "close Unauthenticated: the credential is not accepted: it may have expired or been removed")
		if text := "credential of a live stream is no longer accepted"; strings.Count(b.logs.String(), text) != 1 || !strings.Contains(b.logs.String(), "subject=token:w") {
			t.Errorf("log: %s, want one line %q", b.logs, text)
		}
	})
}

func TestWorkersAreAskedToConnectAnew(t *testing.T) {
	for name, c := range map[string]struct {
		life     time.Duration
		from, to time.Duration
	}{
		"by age":                    {0, guard.StreamAge * 9 / 10, guard.StreamAge * 11 / 10},
		"before a credential ends":  {10 * time.Minute, 9 * time.Minute, 9 * time.Minute},
		"not at once, though, ever": {time.Second + guard.RecheckInterval, guard.RecheckInterval, guard.RecheckInterval},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				authority := newAuthority(t, authz.Limits{}, allow(authz.Worker, "*", "w"))
				if c.life > 0 {
					authority.expires = time.Now().Add(c.life)
				}
				b := serveGated(t, Options{Authority: authority})
				began := time.Now()
				s := b.workAs(t, "w", "w-1")
				m, err := s.Recv()
				took := time.Since(began)
				if err != nil || m.GetDrain() == nil || took < c.from || took > c.to+time.Second {
					t.Errorf("after %v: %v %v, want a Drain after %v to %v", took, m, err, c.from, c.to)
				}
				b.sessions.Want(t, "sent away")
				if connectionAge*9/10 <= guard.StreamAge*11/10 {
					t.Error("connections end before streams have moved")
				}
			})
		})
	}
}

// TestWorkerThatDoesNotRead answers pings and reads nothing: what waits for it must
// not stay for ever.
func TestWorkerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serveGated(t, Options{})
		b.workAs(t, "nobody-asks", "w-1")
		r, began := b.sessions, time.Now()
		fat := &job.Record{Definition: &job.Definition{Key: key, Payload: make([]byte, 256<<10)}}
		for i := range 100 {
			if err := r.Out.Send(job.Assignments{{LeaseID: fmt.Sprint(i), Record: fat}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := <-r.Reported; got != "close ResourceExhausted: the worker does not keep up with its stream" {
			t.Errorf("session was told %q", got)
		}
		if took := time.Since(began); took < guard.StuckTimeout || took > guard.StuckTimeout+guard.RecheckInterval+time.Second {
			t.Errorf("its stream ended after %v", took)
		}
		back := 0
		for _, m := range <-r.Unsent {
			leases, _ := m.(job.Assignments)
			back += len(leases)
		}
		if back < 80 {
			t.Errorf("%d of 100 leases are given back", back)
		}
	})
}

func TestPeerGuard(t *testing.T) {
	ca := newCA(t)
	nodes := newAuthority(t, authz.Limits{}, authz.Rule{Subjects: []string{"cn:node-*"}, Role: authz.Node, Namespaces: []string{"*"}},
		authz.Rule{Subjects: []string{"cn:worker"}, Role: authz.Worker, Namespaces: []string{"*"}}, authz.Rule{Subjects: []string{"cn:root"}, Role: authz.Admin, Namespaces: []string{"*"}})
	open := newAuthority(t, authz.Limits{}, allow(authz.Viewer, "*", "ann"))
	for name, c := range map[string]struct {
		authority *fakeAuthority
		cert      string
		code      codes.Code
	}{
		"node":                      {nodes, "node-1", codes.Unimplemented},
		"worker":                    {nodes, "worker", codes.PermissionDenied},
		"admin":                     {nodes, "root", codes.PermissionDenied},
		"stranger of the same CA":   {nodes, "x", codes.PermissionDenied},
		"no certificate":            {nodes, "", codes.Unauthenticated},
		"no role node":              {open, "x", codes.Unimplemented},
		"no role node and no proof": {open, "", codes.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			check, err := guard.PeerCertificateCheck(c.authority, guard.Options{Logger: slog.New(slog.NewTextHandler(&bytes.Buffer{}, nil)), Registerer: prometheus.NewRegistry()})
			if err != nil {
				t.Fatal(err)
			}
			options, err := guard.PeerServerOptions(credentials.NewTLS(&tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.leaf(t, "node")}, ClientCAs: ca.pool, ClientAuth: tls.VerifyClientCertIfGiven,
			}), check, guard.Options{})
			if err != nil {
				t.Fatal(err)
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer(options...)
			fermatav1.RegisterPeerServiceServer(server, fermatav1.UnimplementedPeerServiceServer{})
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(listener) })
			defer serving.Wait()
			defer server.Stop()
			config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool, ServerName: "node"}
			if c.cert != "" {
				config.Certificates = []tls.Certificate{ca.leaf(t, c.cert)}
			}
			conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			peers := fermatav1.NewPeerServiceClient(conn)
			// The stub answers UNIMPLEMENTED: who hears that was let in.
			if _, err := peers.DescribeNode(t.Context(), &fermatav1.DescribeNodeRequest{}); status.Code(err) != c.code {
				t.Errorf("call: %v", err)
			}
			link, err := peers.Link(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := link.Recv(); status.Code(err) != c.code {
				t.Errorf("link: %v", err)
			}
		})
	}
}

func TestPeersWithoutTLSAreRefused(t *testing.T) {
	authority := newAuthority(t, authz.Limits{}, allow(authz.Viewer, "*", "ann"))
	check, err := guard.PeerCertificateCheck(authority, guard.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	options, err := guard.PeerServerOptions(nil, check, guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	fermatav1.RegisterPeerServiceServer(server, fermatav1.UnimplementedPeerServiceServer{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer serving.Wait()
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fermatav1.NewPeerServiceClient(conn).DescribeNode(t.Context(), &fermatav1.DescribeNodeRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("%v", err)
	}
}
