package rpc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Keepalive of connections. Clients may ping as often as minPing; the server
// itself notices a dead one after pingEvery and pingTimeout.
const (
	minPing     = 5 * time.Second
	pingEvery   = 10 * time.Second
	pingTimeout = 5 * time.Second

	handshakeTimeout = 10 * time.Second
	maxHeaderBytes   = 16 << 10
)

// Options configure a server. Jobs and Cluster are required.
type Options struct {
	Jobs    Jobs
	Cluster Cluster
	// Worker serves the streams of workers; nil serves none.
	Worker fermatav1.WorkerServiceServer
	// Credentials default to none (plain text).
	Credentials credentials.TransportCredentials
	// MaxRecvMsgSize bounds one request in bytes. Default 16 MiB, which holds a
	// batch of 1,000 jobs with payloads of 16 KiB.
	MaxRecvMsgSize int
	// MaxConcurrentStreams bounds the calls at once of one connection. Default 1000.
	MaxConcurrentStreams uint32
	// DisableReflection hides the description of the services.
	DisableReflection bool
	// Now tells what of a job's state has expired. Default: the clock of this node.
	Now func() time.Time
	// Observe hears of each call.
	Observe CallObserver
	// Node is the name of this node in audit records.
	Node string
	// Who tells who makes a call, for audit records. Default: the peer's address.
	Who func(context.Context) string
	// Trail keeps audit records; nil keeps none.
	Trail  Trail
	Logger *slog.Logger
}

// NewServer returns a server that is ready to serve, and its health service,
// which says SERVING until told otherwise. Who drains calls Shutdown on it first.
func NewServer(o Options) (*grpc.Server, *health.Server, error) {
	if o.Jobs == nil || o.Cluster == nil {
		return nil, nil, errors.New("rpc: Jobs and Cluster are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Who == nil {
		o.Who = peerAddress
	}
	server := grpc.NewServer(serverOptions(o)...)
	fermatav1.RegisterJobServiceServer(server, &jobService{jobs: o.Jobs, now: o.Now})
	fermatav1.RegisterBackupServiceServer(server, &backupService{jobs: o.Jobs})
	fermatav1.RegisterClusterServiceServer(server, &clusterService{cluster: o.Cluster, trail: o.Trail})
	if o.Worker != nil {
		fermatav1.RegisterWorkerServiceServer(server, o.Worker)
	}
	checks := health.NewServer()
	for name := range server.GetServiceInfo() {
		checks.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(server, checks)
	if !o.DisableReflection {
		reflection.Register(server)
	}
	return server, checks, nil
}

func serverOptions(o Options) []grpc.ServerOption {
	g := &guard{logger: o.Logger, observe: o.Observe}
	a := &auditor{trail: o.Trail, jobs: o.Jobs, node: o.Node, who: o.Who, logger: o.Logger}
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(g.unary, a.unary),
		grpc.StreamInterceptor(g.stream),
		grpc.MaxRecvMsgSize(cmp.Or(o.MaxRecvMsgSize, 16<<20)),
		grpc.MaxConcurrentStreams(cmp.Or(o.MaxConcurrentStreams, 1000)),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout}),
	}
	if o.Credentials != nil {
		options = append(options, grpc.Creds(o.Credentials))
	}
	return options
}
