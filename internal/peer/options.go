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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/fermata-io/fermata/internal/job"
)

// Handler is who acts on what peers say. Its methods are called from the
// goroutines of links and must not block.
type Handler interface {
	// OnDemand takes the free slots of a peer's workers; it replaces what that
	// peer said before.
	OnDemand(node string, demand []job.QueueDemand)
	// OnLinkDown says that a peer's demand is void.
	OnLinkDown(node string)
	// OnGone says that a peer's process has ended: a link to it broke, and then its
	// address refused connections, which that of a slow or frozen process does not.
	OnGone(node string)
	// OnBack says that a link to a peer is up.
	OnBack(node string)
	// OnNudge takes that a lane became due earlier.
	OnNudge(shard int, head job.LaneHead)
	// OnPermit takes a peer's permit to lease.
	OnPermit(node string, p job.Permit)
	// OnPermitResult takes what a peer did with a permit.
	OnPermitResult(node string, r job.PermitResult)
	// OnHandOver takes that a peer released these shards.
	OnHandOver(shards []int)
	// OnCancel asks to cancel an attempt, if it is here.
	OnCancel(record string, token uint64)
	// OnAddress says that a peer has said over its link where clients reach it, which was not
	// known, or was another address.
	OnAddress(node string)
	// Describe tells what this node knows of itself.
	Describe() job.NodeInfo
}

// Options of a [Peer]. Self and Handler are required.
type Options struct {
	// Self is this node's name.
	Self    string
	Handler Handler
	// Version of this node's program, for people.
	Version string
	// Keyspace is the id of the keyspace that this node uses, asked for at each link. Nodes that
	// say another one are refused. Default: it does not say.
	Keyspace func() string
	// ClientAddr is where clients and workers reach this node, host:port. It is said to those who
	// dial. Default: it does not say.
	ClientAddr string
	// DialOptions are for the connections to other nodes, credentials first of
	// all. Default: plain text.
	DialOptions []grpc.DialOption
	// Dial opens connections to other nodes. Default: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Self == "" || o.Handler == nil {
		return o, errors.New("peer: Self and Handler are required")
	}
	if len(o.DialOptions) == 0 {
		o.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	if o.Keyspace == nil {
		o.Keyspace = func() string { return "" }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

const (
	// helloTimeout is how long a link may be silent before it says who dialled.
	helloTimeout = 5 * time.Second
	// describeTimeout bounds the question to one node.
	describeTimeout = 2 * time.Second
	// demandPause is the least time between two statements of demand.
	demandPause = time.Millisecond
	// queueLimit bounds the messages that wait on one link.
	queueLimit = 4096
	// retryMin and retryMax bound the pause before a link is opened again.
	retryMin = 100 * time.Millisecond
	retryMax = 3 * time.Second
)

// connection is how nodes connect to each other: patient with a node that is
// away, quick when it is back, and aware of a connection that is dead.
func connection() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: retryMax},
			MinConnectTimeout: retryMax,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
	}
}
