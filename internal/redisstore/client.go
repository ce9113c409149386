package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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

	// stateReload is how stale the map of a cluster may get. go-redis's own
	// default needs a minute to notice a dead primary.
	stateReload = time.Second
)

// ClientOptions say where Redis is and how to talk to it.
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
	// SentinelUsername and SentinelPassword are for the sentinels themselves; what is
	// for the data is never shown to them. Without a URL of a Sentinel they are refused.
	SentinelUsername, SentinelPassword string
	// TLS is asked for the configuration of each new connection under rediss, so
	// that certificates can be replaced; without a server name in it, it is for the
	// host that is dialled. Default: the system's authorities. With redis it is
	// refused, so that nobody believes to be encrypted who is not.
	TLS func() *tls.Config
	// ClientName shows in CLIENT LIST.
	ClientName string
	// PoolSize is the number of connections to each server. Default 16.
	PoolSize int
	// Dialer opens connections, on which TLS is spoken with rediss. Default: TCP.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTimeout, ReadTimeout (also for writes) and PoolTimeout default to 1 s,
	// 1 s and 250 ms.
	DialTimeout, ReadTimeout, PoolTimeout time.Duration
}

// NewClient makes a client that behaves as the store needs it: it honours
// deadlines, gives up early, and never repeats a command by itself, because a
// repeated command must be recognised as one by whoever sends it.
func NewClient(o ClientOptions) (redis.UniversalClient, error) {
	target, err := parseURL(o.URL)
	if err != nil {
		return nil, fmt.Errorf("redis URL: %w", err)
	}
	if o.Username != "" {
		target.username = o.Username
	}
	if o.Password != "" {
		target.password = o.Password
	}
	if o.TLS != nil && !target.tls {
		return nil, errors.New("redis TLS: it is configured, but the URL does not begin with rediss: it would not be encrypted")
	}
	if (o.SentinelUsername != "" || o.SentinelPassword != "") && target.master == "" {
		return nil, errors.New("redis sentinel user: it is configured, but the URL does not name sentinels, as redis+sentinel://host:port/master does")
	}
	if target.tls {
		o.Dialer = o.secured()
	}
	u := &redis.UniversalOptions{
		Addrs: target.addrs, MasterName: target.master, DB: target.db, IsClusterMode: target.cluster,
		Username: target.username, Password: target.password,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		ClientName: o.ClientName, Dialer: o.Dialer,
		MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, ContextTimeoutEnabled: true,
		DialTimeout: or(o.DialTimeout, DefaultDialTimeout),
		ReadTimeout: or(o.ReadTimeout, DefaultReadTimeout), WriteTimeout: or(o.ReadTimeout, DefaultReadTimeout),
		PoolTimeout:              or(o.PoolTimeout, DefaultPoolTimeout),
		PoolSize:                 or(o.PoolSize, DefaultPoolSize),
		PipelinePoolSize:         or(o.PoolSize, DefaultPoolSize),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch {
	case target.cluster:
		return newCluster(u), nil
	case target.master != "":
		return redis.NewFailoverClient(u.Failover()), nil
	}
	return redis.NewClient(u.Simple()), nil
}

// answerTimeout is how long a client waits for an answer.
func answerTimeout(c redis.UniversalClient) time.Duration {
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

// newCluster adds what the universal options cannot say: a map of the cluster
// that is at most a second old, and renewed when a server cannot be dialled.
func newCluster(u *redis.UniversalOptions) *redis.ClusterClient {
	o := u.Cluster()
	o.MaxRetries, o.ClusterStateReloadInterval = -1, stateReload
	c := redis.NewClusterClient(o)
	c.OnNewNode(func(n *redis.Client) { n.AddHook(reloadHook{c}) })
	return c
}

// reloadHook asks for the map of the cluster when a dial fails.
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

func or[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}
