package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/lib/rawio"
)

// Handler handles the messages of peers. Its methods are called from the goroutines of links and must not block.
type Handler interface {
	// OnDemand receives the free slots of a peer's workers. It replaces the peer's previous demand.
	OnDemand(node string, demand []job.QueueDemand)
	// OnLinkDown is called when a peer's demand is void.
	OnLinkDown(node string)
	// OnProcessEnded is called when a peer's process has ended: its link broke, and then its address refused
	// connections. The address of a slow or frozen process does not refuse them.
	OnProcessEnded(node string)
	// OnLinkUp is called when a link to a peer is up.
	OnLinkUp(node string)
	// OnNudge takes that a lane became due earlier.
	OnNudge(shard int, head job.LaneHead)
	// OnPermits takes a peer's permits to lease, which are to be leased together.
	OnPermits(node string, permits []job.Permit)
	// OnPermitResults receives the results of permits.
	OnPermitResults(node string, results []job.PermitResult)
	// OnHandOver takes that a peer released these shards.
	OnHandOver(shards []int)
	// OnLeaving is called when a peer leaves the cluster. It stops without having died.
	OnLeaving(node string)
	// OnCancel asks to cancel an attempt, if it is here.
	OnCancel(record job.RecordID, token uint64)
	// OnAddress is called when a peer has sent a new address for clients over its link.
	OnAddress(node string)
	// Describe returns this node's description of itself.
	Describe() job.NodeInfo
}

// Options of a [Peer]. Self and Handler are required.
type Options struct {
	// Self is this node's name.
	Self    string
	Handler Handler
	// Version of this node's program, for people.
	Version string
	// Keyspace returns the id of this node's keyspace; it is called for each link. Nodes that send another id
	// are refused. Default: none is sent.
	Keyspace func() string
	// ClientAddr is the address at which clients and workers reach this node, host:port. It is sent to nodes
	// that dial this one. Default: none is sent.
	ClientAddr string
	// Process returns the name of this process in locks, and Features are what it can do, one bit each. They are sent to
	// nodes that dial this one. Default: none are sent.
	Process  func() string
	Features uint32
	// Credentials are for the connections to other nodes. Default: plain text.
	Credentials credentials.TransportCredentials
	// DialOptions are further options of the connection to a node. member returns it as the cluster knows it at the
	// time, at the address that is dialled. Default: none.
	DialOptions func(member func() sharding.Member) []grpc.DialOption
	// Dial opens connections to other nodes. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Forecast returns the forecast of the shards that this node holds. Default: peers get none.
	Forecast func(context.Context, forecast.Query) (forecast.Answer, error)
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Self == "" || o.Handler == nil {
		return o, errors.New("peer: Self and Handler are required")
	}
	if o.Credentials == nil {
		o.Credentials = insecure.NewCredentials()
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	if o.Keyspace == nil {
		o.Keyspace = func() string { return "" }
	}
	if o.Process == nil {
		o.Process = func() string { return "" }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

const (
	// helloTimeout bounds the time until a node that dialled has sent its hello.
	helloTimeout = 5 * time.Second
	// describeTimeout bounds the question to one node.
	describeTimeout = 2 * time.Second
	// demandPause is the minimum time between two demand messages.
	demandPause = time.Millisecond
	// demandPausePerQueue lengthens demandPause: it is some twenty times what sending a queue takes.
	demandPausePerQueue = 5 * time.Microsecond
	// maxDemandQueues bounds the queues of a demand message: 150 bytes each are less than maxSent. Workers of a node
	// serve fewer.
	maxDemandQueues = 20_000
	// queueLimit bounds the messages that wait on one link.
	queueLimit = 4096
	// retryMin and retryMax bound the pause before a link is opened again.
	retryMin = 100 * time.Millisecond
	retryMax = 3 * time.Second
	// replacementLogPause is the minimum time between two log lines about replaced links of one node.
	replacementLogPause = time.Minute
)

// Bounds of the size of a message, in bytes. A message above the limit of the receiver ends the stream, and the next
// stream would begin with the same message.
const (
	// maxSent is the largest message that is sent. Nodes of the previous build accept 4 MiB.
	maxSent = 3 << 20
	// maxReceived is the largest message that is accepted.
	maxReceived = 16 << 20
	// maxDescription is what a description may have if the node that asks is of this build.
	maxDescription = 15 << 20
)

// MessageLimit is the bound of messages from other nodes, for the node's server for peers.
func MessageLimit() grpc.ServerOption { return grpc.MaxRecvMsgSize(maxReceived) }

// connectionOptions keep dialling a node that is away, reconnect soon after it is back, and detect dead
// connections.
func connectionOptions(c credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(rawCredentials{c}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceived)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: retryMax},
			MinConnectTimeout: retryMax,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	}
}

// rawCredentials make connections of package rawio. The dialer does not: gRPC sets the timeout of unacknowledged
// data on connections of package net only, between dialling and the handshake.
type rawCredentials struct {
	credentials.TransportCredentials
}

func (c rawCredentials) ClientHandshake(ctx context.Context, authority string, plain net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	return c.TransportCredentials.ClientHandshake(ctx, authority, rawio.Wrap(plain))
}

func (c rawCredentials) Clone() credentials.TransportCredentials {
	return rawCredentials{c.TransportCredentials.Clone()}
}
