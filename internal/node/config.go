package node

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/engine/dispatch"
	"github.com/fermata-io/fermata/internal/observe/tracing"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// Config describes one node. Name and Redis.URL are required. Addresses are
// host:port; port 0 takes a free one.
type Config struct {
	// Name is unique in the cluster and stays the same after a restart, where possible. It consists of visible
	// ASCII characters except '|'.
	Name    string
	Version string

	GRPCAddr   string // clients and workers; default 127.0.0.1:7070
	PeerAddr   string // other nodes; default 127.0.0.1:7071
	GossipAddr string // memberlist, TCP and UDP; default 127.0.0.1:7946
	HTTPAddr   string // metrics and health; default 127.0.0.1:7072
	// Advertised addresses are published to others. Default: the address listened on, with the first address of
	// this host in place of a wildcard.
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
	// and CA. A peer is accepted only if its certificate has at least one of PeerNames;
	// see tlsfiles.Source.Peers. Without files: plain text.
	PeerTLS   tlsfiles.Files
	PeerNames []string
	// RedisTLS are the files for a rediss URL.
	RedisTLS tlsfiles.Files
	// Insecure accepts unprotected listeners that other hosts can reach.
	Insecure bool
	// Reflection serves the description of the services on GRPCAddr.
	Reflection bool

	Redis    conn.ClientOptions
	Keyspace string // prefix of all keys; default "fermata"
	Shards   int    // 1 to 4096, fixed when the keyspace is created; 0: as stored, or redisstore's default
	// RedisStartupTimeout is how long Start waits while Redis cannot be reached, is loading, or has too few replicas;
	// default 0: no wait.
	RedisStartupTimeout time.Duration
	// Durability is the class that Redis must meet; see docs/guarantees.md. In class
	// replica a write is confirmed by DurabilityReplicas, 1 or more, default 1, within
	// DurabilityTimeout, 1 ms or more and less than Redis.ReadTimeout, default 500 ms.
	Durability         conn.Durability
	DurabilityReplicas int
	DurabilityTimeout  time.Duration
	// RedisFunctions calls functions that an operator has loaded into Redis, instead of sending scripts; see
	// docs/security/redis.md.
	RedisFunctions bool
	// AllowUnsafeRedis accepts a Redis that may lose or evict keys.
	AllowUnsafeRedis bool
	// Virtual creates a keyspace whose clock is Now. Only for tests: a keyspace that is not virtual refuses it.
	Virtual bool
	Now     func() unixtime.Milli

	// AccessFile lists callers and their roles: see docs/security/access.md. Empty: every caller may do
	// anything.
	AccessFile string
	// ClientLimits bound the calls of each host to this node without an AccessFile, which has limits of its own.
	// Zero: no limits.
	ClientLimits authz.Limits

	// MaxUnauthenticatedConnections is the maximum number of open unauthenticated connections to GRPCAddr, and as many
	// to PeerAddr; a quarter of them from one address. 4 or more. Default: guard.DefaultUnauthenticatedConnections, or
	// if that is less, a quarter of the process's limit of open files, or one for each 256 KiB of its memory limit.
	MaxUnauthenticatedConnections int

	// NamespaceJobs is the maximum number of jobs of a namespace for which AccessFile sets no limit, at most
	// authz.MaxNamespaceJobs; 0: no limit.
	NamespaceJobs int
	// NamespaceJobBytes is the maximum number of bytes of these jobs, at most authz.MaxNamespaceJobBytes; 0: no
	// limit.
	NamespaceJobBytes int

	// Network replaces the host's network, for a cluster inside one process.
	Network Network

	LockTTL  time.Duration // of a shard's lock without refresh, whole ms from 1 s; default 10 s
	LeaseTTL time.Duration // of an attempt, 1 s or more; default 30 s
	// SessionTTL is how long a worker's session lives after its latest heartbeat, 1 s or more; default 8 s. It
	// is limited to two thirds of LeaseTTL.
	SessionTTL time.Duration
	Rescan     time.Duration // safety net of the holder's loop; default 1 s
	// Limits of jobs: MinInterval of 1 ms or more, MaxPayload of 1 to rpc.MaxPayload.
	Limits job.Limits
	// JobRevisions is how many earlier definitions of a job are kept, 0 to job.MaxRevisions; 0: none.
	JobRevisions int
	// DefaultsFile holds presets, and the defaults of retry and backoff of namespaces and queues; see
	// docs/scheduling.md. Defaults are fields for the whole cluster; the file overrides them. All nodes should
	// have the same.
	DefaultsFile string
	Defaults     backoff.Layer
	// PayloadKeyFile holds the keys that encrypt payloads; empty: payloads are stored unencrypted.
	PayloadKeyFile string
	// PayloadRequireSealed refuses to hand out payloads that are not encrypted by version 2. It needs
	// PayloadKeyFile, and a keyspace of redisstore.SchemaOfBoundPayloads.
	PayloadRequireSealed bool
	// ValidatePayloads are the ready-made handlers, of payload.Handlers, whose payloads are checked when a
	// job is registered. Default: none.
	ValidatePayloads []string
	// EventsKeep is the approximate number of events to keep in all shards, 1000 to 10,000,000, the same on all
	// nodes. 0: none are recorded. See docs/events.md.
	EventsKeep int
	// WebhooksFile lists the receivers of events. Empty: none.
	WebhooksFile string
	// UnsuccessfulRunsKeep is the approximate number of runs that ended without success to keep of each queue, in all
	// shards, 1000 to 10,000,000; default 64,000. UnsuccessfulRunsRetention is their age, 1 h to 365 days; default 7
	// days.
	UnsuccessfulRunsKeep      int
	UnsuccessfulRunsRetention time.Duration
	// AuditMaxRecords is the approximate number of audit records to keep, 100 to 10,000,000; default 100,000.
	// AuditRetention is their approximate age, an hour to ten years; default 90 days. AuditMaxBytes bounds their
	// size in Redis, 1 MiB to 64 GiB; default 64 MiB.
	AuditMaxRecords int
	AuditRetention  time.Duration
	AuditMaxBytes   int64
	// AuditKeyFile holds the keys that sign the chain of audit records; see job.ParseChainKeys. Empty:
	// it is not signed.
	AuditKeyFile string
	// MetricsTopJobs is the number of late and of failing jobs that /metrics names, 0 to 50. No other metric contains
	// the id of a job.
	MetricsTopJobs int

	// Tracing configures the export of spans; without an endpoint there are none.
	Tracing tracing.Settings

	Logger *slog.Logger
	// LogLevel serves the logger's level on HTTPAddr; nil: it is not served.
	LogLevel   http.Handler
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer

	exposed []exposure // accepted because of Insecure
}

// Network is how a node reaches other nodes. The dialer of Redis is an option of its client. Nil fields mean the
// host's network.
type Network struct {
	Listen func(address string) (net.Listener, error)
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	Gossip membership.Transport
}

func (n Network) listen(address string) (net.Listener, error) {
	if n.Listen == nil {
		return net.Listen("tcp", address)
	}
	return n.Listen(address)
}

// Authenticates reports whether callers have to authenticate.
func (c *Config) Authenticates() bool { return c.AccessFile != "" }

func (c *Config) setDefaults() {
	orDefault(&c.GRPCAddr, "127.0.0.1:7070")
	orDefault(&c.PeerAddr, "127.0.0.1:7071")
	orDefault(&c.GossipAddr, "127.0.0.1:7946")
	orDefault(&c.HTTPAddr, "127.0.0.1:7072")
	orDefault(&c.Keyspace, "fermata")
	orDefault(&c.Cluster, c.Keyspace)
	orDefault(&c.Version, "dev")
	orDefault(&c.Redis.PoolSize, conn.DefaultPoolSize)
	orDefault(&c.Redis.ReadTimeout, conn.DefaultReadTimeout)
	orDefault(&c.DurabilityReplicas, 1)
	orDefault(&c.DurabilityTimeout, redisstore.DefaultWaitTimeout)
	orDefault(&c.MaxUnauthenticatedConnections,
		defaultUnauthenticatedConnections(maxOpenFiles(), debug.SetMemoryLimit(-1)))
	orDefault(&c.LockTTL, shardlock.DefaultTTL)
	orDefault(&c.LeaseTTL, dispatch.DefaultLeaseTTL)
	orDefault(&c.SessionTTL, dispatch.DefaultSessionTTL)
	orDefault(&c.UnsuccessfulRunsKeep, redisstore.DefaultKeepUnsuccessful)
	orDefault(&c.UnsuccessfulRunsRetention, redisstore.DefaultUnsuccessfulAge)
	orDefault(&c.AuditMaxRecords, audittrail.DefaultMaxRecords)
	orDefault(&c.AuditRetention, audittrail.DefaultAge)
	orDefault(&c.AuditMaxBytes, audittrail.DefaultBytes)
	orDefault(&c.Logger, slog.New(slog.DiscardHandler))
	c.Limits = c.Limits.WithDefaults()
	if c.Registerer == nil || c.Gatherer == nil {
		r := prometheus.NewRegistry()
		r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		c.Registerer, c.Gatherer = r, r
	}
}

func orDefault[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

// unauthenticatedConnectionBytes is about what an open connection without calls costs a node: buffers and stacks.
const unauthenticatedConnectionBytes = 32 << 10

// defaultUnauthenticatedConnections leaves three quarters of the files that the process may open to authenticated
// connections, and seven eighths of its memory. files is 0 where it is not known.
func defaultUnauthenticatedConnections(files uint64, memory int64) int {
	most := min(guard.DefaultUnauthenticatedConnections, memory/8/unauthenticatedConnectionBytes)
	if files > 0 && files/4 < uint64(most) {
		most = int64(files / 4)
	}
	return int(max(most, 16))
}

// advertisedAddress is the published address of a listener.
func advertisedAddress(configured string, listening net.Addr) string {
	if configured != "" {
		return configured
	}
	host, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return listening.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = firstHostAddress()
	}
	return net.JoinHostPort(host, port)
}

// firstHostAddress is the first address of this host that is not loopback.
func firstHostAddress() string {
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
func ParseDurability(name string) (conn.Durability, error) {
	return conn.ParseDurability(name)
}
