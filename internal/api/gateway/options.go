package gateway

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// Connection is a connection to the nodes that sends one credential with each call.
type Connection interface {
	grpc.ClientConnInterface
	Close() error
}

// Options configure a [Gateway].
type Options struct {
	// Dial connects to the nodes. Calls carry the token, or no credential if it is empty. Required.
	Dial func(token string) (Connection, error)
	// RequireToken refuses requests without a token that a node has verified. Required if Dial presents a client
	// certificate: a node that does not check tokens would give every request the rights of the certificate.
	RequireToken bool
	// AllowedHosts are the host names, without port, that requests may name. Default: localhost, 127.0.0.1 and ::1.
	AllowedHosts []string
	// MaxConnections bounds the credentials that are connected at once. Default 1024.
	MaxConnections int
	// MaxCalls bounds the requests of one identity at once, with all its credentials. Default 64.
	MaxCalls int
	// MaxWatches bounds the event streams of one identity at once. Default 32.
	MaxWatches int
	// TrustedProxies are networks of proxies whose X-Forwarded-For names the address of the client.
	TrustedProxies []netip.Prefix
	// CallTimeout bounds one call, events excepted. Default 30 s.
	CallTimeout time.Duration
	// Console configures the web console; nil: none is served.
	Console *ConsoleOptions
	// BasePath is the path below which everything is served, such as /ops/fermata. Default: the root.
	BasePath string
	// Registerer receives the metrics; nil registers none.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

const (
	defaultMaxConnections = 1024
	defaultMaxCalls       = 64
	defaultMaxWatches     = 32
	defaultCallTimeout    = 30 * time.Second

	// idleTimeout is how long an unused connection of a credential is kept.
	idleTimeout = 2 * time.Minute
	// maxVerifications bounds the credentials that are being verified, in total; at most a quarter is of one remote
	// address, see [places]. Nodes grant far more unauthenticated connections to the address of the gateway.
	maxVerifications = 64
	// maxUnverified bounds the requests whose caller no node has verified, in total, or half of the connections if that
	// is less; at most a quarter is of one remote address, see [places]. Each holds some kilobytes, for as long as its
	// client does not read the response. unverifiedTime bounds that: it is more than a sign-in at an issuer takes.
	maxUnverified  = 2048
	unverifiedTime = 30 * time.Second
	// maxWithoutRole bounds the requests of callers without a role, in total; a quarter may be of one remote address.
	maxWithoutRole = 16
	// verifyTimeout bounds one verification.
	verifyTimeout = 5 * time.Second
)

func (o Options) withDefaults() (Options, error) {
	if o.Dial == nil {
		return o, errors.New("gateway: Dial is not set")
	}
	if len(o.AllowedHosts) == 0 {
		o.AllowedHosts = []string{"localhost", "127.0.0.1", "::1"}
	}
	if o.MaxConnections <= 0 {
		o.MaxConnections = defaultMaxConnections
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = defaultMaxCalls
	}
	if o.MaxWatches <= 0 {
		o.MaxWatches = defaultMaxWatches
	}
	if o.CallTimeout <= 0 {
		o.CallTimeout = defaultCallTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	o.BasePath, err = CheckBasePath(o.BasePath)
	return o, err
}
