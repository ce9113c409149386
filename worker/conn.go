package worker

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/fermata-io/fermata/internal/auth/bearer"
)

const (
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// maxMessage bounds what is received at once: leases carry payloads.
	maxMessage = 64 << 20
	// window is what a node may send ahead of being read. Where it is fixed gRPC does not
	// find out by pings, which are as many as messages.
	window = 1 << 20
)

// spread makes a name of many nodes lead to any of them.
const spread = `{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":true}}]}`

// processStart is where monotonic readings of contact count from.
var processStart = time.Now()

// contact remembers when something last came in on a connection. Answers to
// keepalive pings count, so a silent stream that lives has a recent contact.
type contact struct{ at atomic.Int64 }

func (c *contact) mark() { c.at.Store(int64(time.Since(processStart))) }

func (c *contact) last() time.Time { return processStart.Add(time.Duration(c.at.Load())) }

type watchedConn struct {
	net.Conn
	contact *contact
}

func (c watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.contact.mark()
	}
	return n, err
}

// dial prepares a connection to one node; the first call on it connects. An address that was
// learnt stands for a configured endpoint: its certificate is verified, and a token without TLS is
// sent, as at that one. standsFor is empty for a configured address.
func (o Options) dial(address, standsFor string, c *contact) (*grpc.ClientConn, error) {
	target, local := address, []string{address}
	if standsFor != "" {
		target, local = "passthrough:///"+standsFor, append(local, o.Addresses...)
	}
	security := insecure.NewCredentials()
	if o.TLS != nil {
		security = credentials.NewTLS(o.TLS)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithDisableRetry(),
		grpc.WithNoProxy(),
		grpc.WithDefaultServiceConfig(spread),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: openTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithUserAgent("fermata-worker/" + o.Version),
	}
	if o.Token != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer.Credentials(o.Token, local...)))
	}
	options = append(options, o.DialOptions...)
	options = append(options, grpc.WithContextDialer(func(ctx context.Context, resolved string) (net.Conn, error) {
		if standsFor != "" {
			resolved = address
		}
		conn, err := o.Dialer(ctx, resolved)
		if err != nil {
			return nil, err
		}
		return watchedConn{conn, c}, nil
	}))
	return grpc.NewClient(target, options...)
}
