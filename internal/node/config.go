package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fermata-io/fermata/internal/access"
	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/membership"
	"github.com/fermata-io/fermata/internal/redisstore"
	"github.com/fermata-io/fermata/internal/rpc"
	"github.com/fermata-io/fermata/internal/shardlock"
	"github.com/fermata-io/fermata/internal/tlsfiles"
	"github.com/fermata-io/fermata/internal/tracing"
)

// Config describes one node. Name and Redis.URL are required. Addresses are
// host:port; port 0 takes a free one.
type Config struct {
	// Name is unique in the cluster and the same after a restart, where possible.
	Name    string
	Version string

	GRPCAddr   string // clients and workers; default 127.0.0.1:7070
	PeerAddr   string // other nodes; default 127.0.0.1:7071
	GossipAddr string // memberlist, TCP and UDP; default 127.0.0.1:7946
	HTTPAddr   string // metrics and health; default 127.0.0.1:7072
	// Advertised addresses are those that others are told. Default: the address
	// listened on, with the first address of this host in place of a wildcard.
	AdvertiseGRPC, AdvertisePeer, AdvertiseGossip string

	// Join lists gossip addresses or DNS names of other nodes.
	Join []string
	// GossipKeyFile holds the keys that encrypt the gossip; see
	// membership.ReadKeys. Empty: plain text. GossipAllow are the networks, such as
	// 10.0.0.0/8, that other nodes may be in. Empty: any.
	GossipKeyFile string
	GossipAllow   []string
	// Cluster labels the gossip, so that clusters cannot mix. Default: Keyspace.
	Cluster string

	// TLS protects GRPCAddr: a certificate, its key, and with a CA the authority of
	// clients' and workers' certificates. ClientAuth is "required", the default with
	// a CA, or "optional". Without a certificate: plain text.
	TLS        tlsfiles.Files
	ClientAuth string
	// PeerTLS protects the links between nodes, in both directions: certificate, key
	// and CA. PeerNames are the names of which a peer's certificate must carry one;
	// see tlsfiles.Source.Peers. Without files: plain text.
	PeerTLS   tlsfiles.Files
	PeerNames []string
	// RedisTLS are the files for a rediss URL.
	RedisTLS tlsfiles.Files
	// Insecure accepts addresses that other hosts can reach and nothing protects.
	Insecure bool
	// Reflection describes the services to whoever reaches GRPCAddr.
	Reflection bool

	Redis    redisstore.ClientOptions
	Keyspace string // prefix of all keys; default "fermata"
	Shards   int    // fixed when the keyspace is created; default 64
	// Durability is the class that Redis must meet; see docs/guarantees.md.
	Durability         redisstore.Durability
	DurabilityReplicas int
	DurabilityTimeout  time.Duration
	// RedisFunctions calls functions that an operator has loaded into Redis, in place of
	// sending scripts; see docs/security/redis.md.
	RedisFunctions bool
	// AllowUnsafe accepts a Redis that may lose or evict keys.
	AllowUnsafe bool
	// Virtual makes a keyspace whose clock is Now. Only for tests: a keyspace that
	// is not virtual refuses it.
	Virtual bool
	Now     func() int64

	// AccessFile says who may do what: see docs/security/access.md. Empty: everybody
	// may do anything.
	AccessFile string
	// ClientLimits bound what each host may ask of this node while there is no
	// AccessFile, which has limits of its own. Zero: nothing.
	ClientLimits access.Limits

	// UnprovedConnections is how many connections to GRPCAddr, and as many to PeerAddr,
	// may be open of which no caller is known yet, a quarter of them from one address.
	// Default: rpc.DefaultUnproved, or a quarter of the files that the process may open
	// if that is less.
	UnprovedConnections int

	// NamespaceJobs is how many jobs each namespace may have of which AccessFile says
	// nothing; 0 is no limit.
	NamespaceJobs int

	// Network stands in for the host's network, for a cluster inside one process.
	Network Network

	LockTTL  time.Duration // of a shard's lock without refresh; default 10 s
	LeaseTTL time.Duration // of an attempt; default 30 s
	Rescan   time.Duration // safety net of the holder's loop; default 1 s
	Limits   job.Limits
	// PayloadKeyFile holds the keys that seal payloads; empty: payloads are stored as
	// they are given.
	PayloadKeyFile string
	// EventsKeep is about how many events are kept, all shards together, 1000 to
	// 10,000,000, the same on all nodes. 0: none are recorded. See docs/events.md.
	EventsKeep int
	// WebhooksFile says who is told of events. Empty: nobody.
	WebhooksFile string
	// AuditKeep is about how many audit records are kept; default 10,000.
	AuditKeep int
	// WorstJobs is how many of the late and of the failing jobs /metrics names, 0 to
	// 50; default none, for no other metric carries the id of a job.
	WorstJobs int

	// Tracing says where spans go; without an endpoint there are none.
	Tracing tracing.Settings

	Logger *slog.Logger
	// LogLevel answers requests about the logger's level at HTTPAddr; nil: nobody does.
	LogLevel   http.Handler
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer

	exposed []exposure // let through by Insecure
}

// Network is what a node reaches others by, but for Redis, whose dialer is an
// option of its client. Nil fields mean the host's network.
type Network struct {
	Listen func(address string) (net.Listener, error)
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	Gossip membership.Transport
}

// Authenticates tells whether callers have to say who they are.
func (c *Config) Authenticates() bool { return c.AccessFile != "" }

func (c *Config) setDefaults() error {
	for _, d := range []struct {
		field *string
		value string
	}{
		{&c.GRPCAddr, "127.0.0.1:7070"}, {&c.PeerAddr, "127.0.0.1:7071"},
		{&c.GossipAddr, "127.0.0.1:7946"}, {&c.HTTPAddr, "127.0.0.1:7072"},
		{&c.Keyspace, "fermata"}, {&c.Version, "dev"},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	var errs []error
	if c.Cluster == "" {
		c.Cluster = c.Keyspace
	}
	if c.Shards == 0 {
		c.Shards = 64
	}
	if c.UnprovedConnections == 0 {
		c.UnprovedConnections = rpc.DefaultUnproved
		if files := openFiles(); files > 0 && files/4 < rpc.DefaultUnproved {
			c.UnprovedConnections = max(16, int(files/4))
		}
	}
	if c.LockTTL == 0 {
		c.LockTTL = shardlock.DefaultTTL
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.exposed = c.exposures(); !c.Insecure {
		errs = append(errs, refused(c.exposed))
	}
	if c.Network.Listen == nil {
		c.Network.Listen = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}
	if c.Registerer == nil || c.Gatherer == nil {
		r := prometheus.NewRegistry()
		r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		c.Registerer, c.Gatherer = r, r
	}
	if c.Name == "" {
		errs = append(errs, errors.New("a node needs a name"))
	}
	for _, a := range []struct{ name, value string }{
		{"grpc-addr", c.GRPCAddr}, {"peer-addr", c.PeerAddr}, {"gossip-addr", c.GossipAddr}, {"http-addr", c.HTTPAddr},
	} {
		if _, _, err := net.SplitHostPort(a.value); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: want host:port", a.name, a.value))
		}
	}
	if c.Authenticates() && c.ClientLimits != (access.Limits{}) {
		errs = append(errs, errors.New("client limits are for nodes without access-file; set limits there"))
	}
	if c.WorstJobs < 0 || c.WorstJobs > maxWorstJobs {
		errs = append(errs, fmt.Errorf("worst-jobs %d: want 0 to %d", c.WorstJobs, maxWorstJobs))
	}
	errs = append(errs, c.ClientLimits.Check("client limits"))
	if c.WebhooksFile != "" && c.EventsKeep == 0 {
		errs = append(errs, errors.New("webhooks-file needs events-keep: without it no events are recorded"))
	}
	if k := c.EventsKeep; k != 0 && (k < redisstore.MinKeepEvents || k > redisstore.MaxKeepEvents) {
		errs = append(errs, fmt.Errorf("events-keep %d: want %d to %d, or 0 for none", k, redisstore.MinKeepEvents, redisstore.MaxKeepEvents))
	}
	if c.NamespaceJobs < 0 || c.NamespaceJobs > access.MaxNamespaceJobs {
		errs = append(errs, fmt.Errorf("namespace-jobs %d: want 0 (no limit) to %d", c.NamespaceJobs, access.MaxNamespaceJobs))
	}
	if c.UnprovedConnections < 4 {
		errs = append(errs, fmt.Errorf("unproved-connections %d: want at least 4", c.UnprovedConnections))
	}
	// WAIT is answered after at most one, the answer is waited for at most the other.
	wait := cmp.Or(c.DurabilityTimeout, redisstore.DefaultWaitTimeout)
	if read := cmp.Or(c.Redis.ReadTimeout, redisstore.DefaultReadTimeout); c.Durability == redisstore.DurabilityReplica && wait >= read {
		errs = append(errs, fmt.Errorf("durability-timeout %v: must be shorter than redis-timeout %v", wait, read))
	}
	return errors.Join(errs...)
}

// maxWorstJobs bounds the series that carry the id of a job.
const maxWorstJobs = 50

// advertised is what others are told of an address that was listened on.
func advertised(configured string, listening net.Addr) string {
	if configured != "" {
		return configured
	}
	host, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return listening.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = hostAddress()
	}
	return net.JoinHostPort(host, port)
}

// hostAddress is the first address of this host that is not loopback.
func hostAddress() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// ParseDurability reads a durability class by its name.
func ParseDurability(name string) (redisstore.Durability, error) {
	return redisstore.ParseDurability(name)
}
