package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/grpccodec"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Keepalive of connections. Clients may ping as often as minPing; the server
// itself notices a dead one after pingEvery and pingTimeout.
const (
	minClientPing = 5 * time.Second
	pingInterval  = 10 * time.Second
	pingTimeout   = 5 * time.Second

	// connectionAge, give or take a tenth, is when clients are asked to connect anew,
	// so that they spread over new nodes; what they have under way may end within
	// connectionGrace. Streams of workers have moved before: see streamAge.
	connectionAge   = 30 * time.Minute
	connectionGrace = 5 * time.Minute

	// streamWorkers are goroutines that serve calls one after the other, so that the
	// stack which a call needs is grown once for many. Calls that find none of them
	// free get a goroutine of their own.
	streamWorkers = 64

	// What a caller may send ahead of being read, by stream and connection. Where it is
	// fixed gRPC does not find out by pings, which are as many as messages. A message
	// that is larger gets the room that it takes.
	streamWindow     = guard.StreamWindow
	connectionWindow = 1 << 20

	handshakeTimeout = 10 * time.Second
)

// MaxPayload is the largest payload, in bytes, that a message has room for beside the rest of a job: in a backup, the
// payloads that runs have of their own, and 1 MiB for all else.
const MaxPayload = guard.MaxRequestBytes - job.MaxOwnPayloads - 1<<20

// Options configure a server. Jobs and Cluster are required.
type Options struct {
	Jobs    Jobs
	Cluster Cluster
	// Worker serves the streams of workers; nil serves none.
	Worker fermatav1.WorkerServiceServer
	// Sizes answers autoscalers; nil serves none.
	Sizes Sizes
	// Credentials default to none (plain text).
	Credentials credentials.TransportCredentials
	// MaxRecvMsgSize bounds one request in bytes. Default 16 MiB, which holds a
	// batch of 1,000 jobs with payloads of 16 KiB.
	MaxRecvMsgSize int
	// MaxConcurrentStreams bounds the calls at once of one connection. Default 250.
	MaxConcurrentStreams uint32
	// UnservedQueues returns those of some queues that certainly have no worker; nil: nothing is known. Jobs of these
	// queues are answered with a warning.
	UnservedQueues func(context.Context, []job.QueueKey) []job.QueueKey
	// Defaults are the operator's values of policies that jobs do not set; nil: only the built-in ones.
	Defaults *backoff.Defaults
	// Authority authenticates and authorizes callers. If it is nil, every caller may do anything.
	Authority guard.Authority
	// LeaseSigningKey is the secret key, common to all nodes, that lease ids are signed with: workerstream.MinKeyBytes
	// or more. Required with an Authority.
	LeaseSigningKey []byte
	// Limits apply to each calling host when there is no Authority.
	Limits authz.Limits
	// MaxPayload is the largest payload of a job, in bytes: see [guard.Options].
	MaxPayload int
	// JobLimit is how many jobs a namespace may have, 0 if there is no limit; nil: none
	// has one.
	JobLimit func(namespace string) int
	// JobBytesLimit is the same of the bytes of its jobs.
	JobBytesLimit func(namespace string) int
	// MaxUnauthenticated bounds the open connections without an authenticated caller; one address may have a quarter
	// of them. Without an Authority, a connection counts until its first call. Default
	// [guard.DefaultUnauthenticatedConnections].
	MaxUnauthenticated int
	// UnauthenticatedAge bounds how long a connection may stay unauthenticated. Default
	// [guard.DefaultUnauthenticatedAge].
	UnauthenticatedAge time.Duration
	// Registerer is for metrics about refused calls; nil registers nothing.
	Registerer prometheus.Registerer
	// Reflection serves the description of the services.
	Reflection bool
	// Now decides which parts of a job's state have expired. Default: the clock of this node.
	Now func() time.Time
	// Trace begins the span of a call; nil: calls are not traced.
	Trace guard.CallTracer
	// ObserveCall is called after each call.
	ObserveCall guard.CallObserver
	// Node is the name of this node in audit records.
	Node string
	// Events feeds watchers, and Webhooks lists the webhooks. Either may be nil.
	Events   Events
	Webhooks Webhooks
	// KeyspaceFault returns why the keyspace counts as lost, or "". While it does, calls that change something are
	// refused with that text. Default: never lost.
	KeyspaceFault func() string
	// AuditTrail keeps audit records; nil keeps none.
	AuditTrail AuditTrail
	Logger     *slog.Logger
}

// NewServer returns a server that is ready to serve, and its health service,
// which reports SERVING. Call its Shutdown before draining.
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
	if o.Authority != nil && len(o.LeaseSigningKey) < workerstream.MinKeyBytes {
		return nil, nil, fmt.Errorf("rpc: a binding key of %d bytes, want %d",
			len(o.LeaseSigningKey), workerstream.MinKeyBytes)
	}
	gate, err := guard.New(guard.Options{
		Authority: o.Authority, Binding: o.LeaseSigningKey, Limits: o.Limits, MaxPayload: o.MaxPayload,
		MaxUnauthenticated: o.MaxUnauthenticated, UnauthenticatedAge: o.UnauthenticatedAge,
		Registerer: o.Registerer, Logger: o.Logger,
	})
	if err != nil {
		return nil, nil, err
	}
	o.MaxRecvMsgSize = cmp.Or(o.MaxRecvMsgSize, guard.MaxRequestBytes)
	codec := guard.UnreadCodec(grpccodec.Codec())
	options, err := serverOptions(o, gate, codec)
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer(options...)
	checks := registerServices(server, gate.Services(server, codec, o.MaxRecvMsgSize), o)
	return server, checks, guard.CheckMethods(server.GetServiceInfo())
}

// registerServices registers the services of a server, and returns that of its health.
func registerServices(server *grpc.Server, services grpc.ServiceRegistrar, o Options) *health.Server {
	jobs := newJobService(queueScopedJobs{o.Jobs}, o.Now, o.Defaults)
	jobs.unservedQueues = o.UnservedQueues
	fermatav1.RegisterJobServiceServer(services, jobs)
	fermatav1.RegisterBackupServiceServer(services, &backupService{jobs: queueScopedJobs{o.Jobs}, defaults: o.Defaults})
	fermatav1.RegisterAccessServiceServer(services, &accessService{
		limits: o.Limits, jobLimit: o.JobLimit, bytesLimit: o.JobBytesLimit, node: o.Node,
	})
	fermatav1.RegisterClusterServiceServer(services, &clusterService{cluster: o.Cluster, now: o.Now, trail: o.AuditTrail})
	if o.Events == nil {
		o.Events = noEvents{}
	}
	fermatav1.RegisterEventServiceServer(services, &eventService{events: o.Events, hooks: o.Webhooks})
	if o.Worker != nil {
		fermatav1.RegisterWorkerServiceServer(services, o.Worker)
	}
	if o.Sizes != nil {
		externalscaler.RegisterExternalScalerServer(services, &scalerService{sizes: o.Sizes})
	}
	checks := health.NewServer()
	for name := range server.GetServiceInfo() {
		checks.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(services, checks)
	if o.Reflection {
		reflection.Register(struct {
			grpc.ServiceRegistrar
			reflection.ServiceInfoProvider
		}{services, server})
	}
	return checks
}

func serverOptions(o Options, gate *guard.Gate, codec encoding.CodecV2) ([]grpc.ServerOption, error) {
	g := guard.NewReporter(o.Logger, o.ObserveCall)
	a := &auditInterceptor{trail: o.AuditTrail, jobs: o.Jobs, node: o.Node, logger: o.Logger, subject: callerSubject}
	unary, stream := []grpc.UnaryServerInterceptor{g.UnaryInterceptor}, []grpc.StreamServerInterceptor{g.StreamInterceptor}
	if gate.ChecksCalls() {
		unary, stream = append(unary, gate.UnaryInterceptor), append(stream, gate.StreamInterceptor)
	}
	unary = append(unary, gate.BoundUnread)
	if o.Trace != nil {
		unary = append(unary, o.Trace.UnaryInterceptor)
	}
	if o.KeyspaceFault != nil {
		unary = append(unary, keyspaceGuard(o.KeyspaceFault).interceptUnary)
	}
	options, err := gate.ConnectionOptions(o.Credentials, o.Registerer)
	if err != nil {
		return nil, err
	}
	return append(options,
		grpc.ChainUnaryInterceptor(append(unary, a.interceptUnary)...),
		grpc.ChainStreamInterceptor(stream...),
		grpc.MaxRecvMsgSize(o.MaxRecvMsgSize), grpc.ForceServerCodecV2(codec),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.MaxConcurrentStreams(cmp.Or(o.MaxConcurrentStreams, guard.MaxStreamsPerConnection)),
		grpc.MaxHeaderListSize(guard.MaxHeaderBytes),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: pingInterval, Timeout: pingTimeout, MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: connectionGrace,
		}),
	), nil
}
