package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Defaults of [ClientOptions].
const (
	DefaultDialTimeout = time.Second
	DefaultReadTimeout = time.Second
	DefaultPoolTimeout = 250 * time.Millisecond
	DefaultPoolSize    = 16

	// handshakeAnswers bounds the handshake of a new connection, in read timeouts. It waits for one
	// reply.
	handshakeAnswers = 2

	// MaxPoolSize is ten times the default maxclients of a server.
	MaxPoolSize = 100_000

	// stateReload is how stale the map of a cluster may get. go-redis's own
	// default needs a minute to notice a dead primary.
	stateReload = time.Second
)

// ClientOptions have the address of Redis and the settings of its connections.
type ClientOptions struct {
	// URL is one of
	//
	//	redis://host:port/db                             one server
	//	redis+sentinel://host:port,host:port/master?db=1 under Sentinel
	//	redis+cluster://host:port,host:port              a cluster
	//
	// with rediss instead of redis for TLS. user:password@ may precede the hosts.
	URL string
	// Username and Password win over those of the URL. Without a username they
	// are the default user's.
	Username, Password string
	// SentinelUsername and SentinelPassword are for the sentinels, which never receive those for the
	// data. Without a Sentinel URL they are an error.
	SentinelUsername, SentinelPassword string
	// TLS returns the configuration of each new connection with rediss, so that certificates can be
	// replaced. If it has no server name, that of the dialled host is used. Default: the system's
	// authorities. With redis it is an error, so that a connection that should be encrypted is.
	TLS func() *tls.Config
	// ClientName shows in CLIENT LIST; see [ValidateClientName].
	ClientName string
	// PoolSize is the number of connections to each server, 1 to 100,000. Default 16.
	PoolSize int
	// Dialer opens connections, on which TLS is spoken with rediss. Default: TCP.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTimeout, ReadTimeout (also for writes) and PoolTimeout default to 1 s,
	// 1 s and 250 ms. None is negative.
	DialTimeout, ReadTimeout, PoolTimeout time.Duration
}

// NewClient makes a client as the store needs it. It honours deadlines, gives up early, and never retries
// a command: a retried command must be recognised as one by its sender.
func NewClient(o ClientOptions) (redis.UniversalClient, error) {
	target, err := o.parseURL()
	if err := errors.Join(err, o.validate()); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if o.Username != "" {
		target.username = o.Username
	}
	if o.Password != "" {
		target.password = o.Password
	}
	o.Dialer = o.timeLimitedDialer()
	if target.tls {
		o.Dialer = o.tlsDialer()
	}
	handshake := newHandshakeHook(target, o.ClientName, handshakeAnswers*orDefault(o.ReadTimeout, DefaultReadTimeout))
	u := &redis.UniversalOptions{
		Addrs: target.addresses, MasterName: target.master, DB: target.database, IsClusterMode: target.cluster,
		Username: target.username, Password: target.password,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		ClientName: o.ClientName, Dialer: o.Dialer,
		MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, ContextTimeoutEnabled: true,
		DialTimeout:              orDefault(o.DialTimeout, DefaultDialTimeout) + handshake.timeout,
		ReadTimeout:              orDefault(o.ReadTimeout, DefaultReadTimeout),
		WriteTimeout:             orDefault(o.ReadTimeout, DefaultReadTimeout),
		PoolTimeout:              orDefault(o.PoolTimeout, DefaultPoolTimeout),
		PoolSize:                 orDefault(o.PoolSize, DefaultPoolSize),
		PipelinePoolSize:         orDefault(o.PoolSize, DefaultPoolSize),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch {
	case target.cluster:
		return newClusterClient(u, handshake), nil
	case target.master != "":
		// The clients of the sentinels get no hooks.
		return addHooks(redis.NewFailoverClient(u.Failover()), handshake), nil
	}
	return addHooks(redis.NewClient(u.Simple()), handshake), nil
}

func addHooks(c *redis.Client, handshake handshakeHook) *redis.Client {
	c.AddHook(handshake)
	c.AddHook(newReplacementHook(c))
	return c
}

// CheckURL validates the URL, also against the other options. No error shows a password.
func (o ClientOptions) CheckURL() error {
	_, err := o.parseURL()
	return err
}

// Servers are the addresses in the URL, separated by commas; "" for an invalid URL.
func (o ClientOptions) Servers() string {
	t, _ := parseRedisURL(o.URL)
	return strings.Join(t.addresses, ",")
}

// parseURL parses the URL and checks the other options against it.
func (o ClientOptions) parseURL() (redisURL, error) {
	t, err := parseRedisURL(o.URL)
	switch {
	case err != nil:
		return t, fmt.Errorf("URL: %w", err)
	case o.TLS != nil && !t.tls:
		return t, errors.New("TLS is configured, but the URL does not begin with rediss: it would not be encrypted")
	case (o.SentinelUsername != "" || o.SentinelPassword != "") && t.master == "":
		return t, errors.New("a user of sentinels is configured, but the URL does not name sentinels, " +
			"as redis+sentinel://host:port/master does")
	}
	return t, nil
}

// validate checks the options other than the URL.
func (o ClientOptions) validate() error {
	switch {
	case o.PoolSize < 0 || o.PoolSize > MaxPoolSize:
		return fmt.Errorf("%d connections: must be 1 to %d", o.PoolSize, MaxPoolSize)
	case o.DialTimeout < 0 || o.ReadTimeout < 0 || o.PoolTimeout < 0:
		return fmt.Errorf("timeouts %v, %v and %v: none may be negative", o.DialTimeout, o.ReadTimeout, o.PoolTimeout)
	}
	if fault := ValidateClientName(o.ClientName); fault != "" {
		return fmt.Errorf("client name %q %s", o.ClientName, fault)
	}
	return nil
}

// ValidateClientName is why Redis would reject a client name, and the handshake that has it; "" for a valid
// one.
func ValidateClientName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' }) {
		return "has a space or another character that is not visible ASCII"
	}
	return ""
}

// AnswerTimeout is how long a client waits for a reply.
func AnswerTimeout(c redis.UniversalClient) time.Duration {
	timeout := time.Duration(0)
	switch c := c.(type) {
	case *redis.Client:
		timeout = c.Options().ReadTimeout
	case *redis.ClusterClient:
		timeout = c.Options().ReadTimeout
	}
	if timeout <= 0 { // unknown, or without end
		return DefaultReadTimeout
	}
	return timeout
}

// newClusterClient sets what the universal options lack: the map of the cluster is at most a second old,
// and reloaded when a server cannot be dialled.
func newClusterClient(u *redis.UniversalOptions, handshake handshakeHook) *redis.ClusterClient {
	o := u.Cluster()
	o.MaxRetries, o.ClusterStateReloadInterval = -1, stateReload
	c := redis.NewClusterClient(o)
	c.OnNewNode(func(n *redis.Client) {
		n.AddHook(reloadHook{c})
		addHooks(n, handshake)
	})
	return c
}

// reloadHook reloads the map of the cluster when a dial fails.
type reloadHook struct{ cluster *redis.ClusterClient }

func (h reloadHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			h.cluster.ReloadState(ctx)
		}
		return conn, err
	}
}

func (reloadHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (reloadHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func orDefault[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}
