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
	"github.com/fermata-io/fermata/internal/lib/rawio"
)

const (
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// maxMessageBytes bounds what is received at once: leases carry payloads.
	maxMessageBytes = 64 << 20
	// flowWindowBytes is how many bytes a node may send before they are read. A fixed window stops gRPC from
	// measuring the bandwidth with pings, one for nearly every message.
	flowWindowBytes = 1 << 20
)

// shuffleServiceConfig makes gRPC pick any of the addresses that a host name resolves to.
const shuffleServiceConfig = `{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":true}}]}`

// processStart is the origin of the monotonic times in contactTime.
var processStart = time.Now()

// contactTime is when data last arrived on a connection. Answers to keepalive pings count, so an idle stream of
// a live node has a recent contact.
type contactTime struct{ at atomic.Int64 }

func (c *contactTime) markReceived() { c.at.Store(int64(time.Since(processStart))) }

func (c *contactTime) lastReceived() time.Time { return processStart.Add(time.Duration(c.at.Load())) }

type watchedConn struct {
	net.Conn
	contact *contactTime
}

func (c watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.contact.markReceived()
	}
	return n, err
}

// newConnection prepares a connection to one node; the first call on it connects. A learnt address stands for a
// configured endpoint (standsFor): its certificate is verified as for that endpoint, and a token without TLS is
// sent under the same condition. standsFor is empty for a configured address.
func (o Options) newConnection(address, standsFor string, c *contactTime) (*grpc.ClientConn, error) {
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
		grpc.WithDefaultServiceConfig(shuffleServiceConfig),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithStaticStreamWindowSize(flowWindowBytes), grpc.WithStaticConnWindowSize(flowWindowBytes),
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
		return watchedConn{rawio.Wrap(conn), c}, nil
	}))
	return grpc.NewClient(target, options...)
}
