package node

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/engine/dispatch"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// configErrors collects the errors of a configuration, each with the name of its flag.
type configErrors []error

// require adds an error unless ok.
func (f *configErrors) require(ok bool, flag string, value any, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf("--%s %v: want %s", flag, value, fmt.Sprintf(format, args...)))
	}
}

// requireBetween requires low to high.
func (f *configErrors) requireBetween(flag string, value, low, high int) {
	f.require(value >= low && value <= high, flag, value, "%d to %d", low, high)
}

// requireAtLeast requires low or more.
func (f *configErrors) requireAtLeast(flag string, value, low int) {
	f.require(value >= low, flag, value, "%d or more", low)
}

// requireDuration requires low or more.
func (f *configErrors) requireDuration(flag string, value, low time.Duration) {
	f.require(value >= low, flag, value, "%v or more", low)
}

// validate reports all errors at once, before Redis is contacted. Otherwise the parts would report them one
// after the other. Defaults are set already.
func (c *Config) validate() error {
	var f configErrors
	c.checkName(&f)
	c.checkAddresses(&f)
	c.checkRedis(&f)
	c.checkJobs(&f)
	c.checkCallers(&f)
	c.checkRecords(&f)
	return errors.Join(append(f, c.checkExposure())...)
}

func (c *Config) checkName(f *configErrors) {
	if c.Name == "" {
		*f = append(*f, errors.New("--name: a node needs one"))
	}
	unfit := conn.ValidateClientName(c.Name) != "" || strings.Contains(c.Name, shardlock.Separator)
	f.require(!unfit, "name", strconv.Quote(c.Name), "visible ASCII characters, without spaces and %s",
		shardlock.Separator)
	f.require(len(c.Cluster) <= membership.MaxLabel, "cluster", strconv.Quote(c.Cluster), "%d bytes or fewer",
		membership.MaxLabel)
}

func (c *Config) checkAddresses(f *configErrors) {
	for _, a := range []struct{ flag, addr string }{
		{"grpc-addr", c.GRPCAddr}, {"peer-addr", c.PeerAddr}, {"http-addr", c.HTTPAddr},
	} {
		_, _, ok := splitNumericPort(a.addr)
		f.require(ok, a.flag, strconv.Quote(a.addr), "host:port")
	}
	for _, a := range []struct{ flag, addr string }{
		{"advertise-grpc", c.AdvertiseGRPC}, {"advertise-peer", c.AdvertisePeer},
	} {
		host, port, ok := splitNumericPort(a.addr)
		f.require(a.addr == "" || ok && host != "" && port != 0, a.flag, strconv.Quote(a.addr),
			"host:port that others can connect to")
	}
	host, _, ok := splitNumericPort(c.GossipAddr)
	f.require(ok && (host == "" || net.ParseIP(host) != nil), "gossip-addr", strconv.Quote(c.GossipAddr),
		"host:port with an IP address")
	host, port, ok := splitNumericPort(c.AdvertiseGossip)
	f.require(c.AdvertiseGossip == "" || ok && net.ParseIP(host) != nil && port != 0, "advertise-gossip",
		strconv.Quote(c.AdvertiseGossip),
		"host:port that others can connect to, with an IP address")
}

// splitNumericPort splits an address whose port is a number.
func splitNumericPort(addr string) (host string, port int, ok bool) {
	host, port, err := splitHostPort(addr)
	return host, port, err == nil && port >= 0 && port <= 65535
}

func (c *Config) checkRedis(f *configErrors) {
	f.requireBetween("redis-pool-size", c.Redis.PoolSize, 1, conn.MaxPoolSize)
	f.requireDuration("redis-timeout", c.Redis.ReadTimeout, time.Millisecond)
	f.require(c.RedisStartupTimeout >= 0, "redis-startup-timeout", c.RedisStartupTimeout, "0 or more")
	f.requireBetween("shards", c.Shards, 0, redisstore.MaxShards)
	if err := redisacl.CheckKeyspace(c.Keyspace); err != nil {
		*f = append(*f, fmt.Errorf("--keyspace: %w", err))
	}
	f.requireAtLeast("durability-replicas", c.DurabilityReplicas, 1)
	f.requireDuration("durability-timeout", c.DurabilityTimeout, redisstore.MinWaitTimeout)
	// WAIT is answered within DurabilityTimeout, and the client waits at most ReadTimeout.
	f.require(c.Durability != conn.DurabilityReplica || c.DurabilityTimeout < c.Redis.ReadTimeout,
		"durability-timeout", c.DurabilityTimeout, "less than --redis-timeout, which is %v", c.Redis.ReadTimeout)
	f.require(c.LockTTL >= shardlock.MinTTL && c.LockTTL%time.Millisecond == 0, "lock-ttl", c.LockTTL,
		"%v or more, in whole milliseconds", shardlock.MinTTL)
}

func (c *Config) checkJobs(f *configErrors) {
	f.requireDuration("lease-ttl", c.LeaseTTL, dispatch.MinLeaseTTL)
	f.requireDuration("session-ttl", c.SessionTTL, dispatch.MinSessionTTL)
	f.requireDuration("min-interval", c.Limits.MinInterval, time.Millisecond)
	f.require(c.Limits.MaxPayload >= 1 && c.Limits.MaxPayload <= rpc.MaxPayload, "max-payload", c.Limits.MaxPayload,
		"1 to %d: a message has 16 MiB, and room for the rest of a job", rpc.MaxPayload)
	for _, handler := range c.ValidatePayloads {
		f.require(slices.Contains(payload.Handlers(), handler), "validate-payloads", strconv.Quote(handler),
			"some of %s", strings.Join(payload.Handlers(), ", "))
	}
	f.require(c.NamespaceJobs >= 0 && c.NamespaceJobs <= authz.MaxNamespaceJobs, "namespace-jobs", c.NamespaceJobs,
		"0 (no limit) to %d", authz.MaxNamespaceJobs)
	f.require(c.NamespaceJobBytes >= 0 && c.NamespaceJobBytes <= authz.MaxNamespaceJobBytes, "namespace-job-bytes",
		c.NamespaceJobBytes,
		"0 (no limit) to %d", authz.MaxNamespaceJobBytes)
}

func (c *Config) checkCallers(f *configErrors) {
	l := c.ClientLimits
	f.require(l.Rate >= 0 && l.Rate <= authz.MaxRate, "client-rate", l.Rate, "0 (no limit) to %d", authz.MaxRate)
	f.require(l.Burst >= 0, "client-burst", l.Burst, "0 or more")
	f.require(l.Burst <= 0 || l.Rate != 0, "client-burst", l.Burst, "--client-rate with it")
	f.require(l.MaxOpenCalls >= 0, "client-calls", l.MaxOpenCalls, "0 (no limit) or more")
	f.require(l.Connections >= 0, "client-connections", l.Connections, "0 (no limit) or more")
	if c.Authenticates() && l != (authz.Limits{}) {
		*f = append(*f, errors.New("--client-rate, --client-burst, --client-calls and --client-connections are for "+
			"nodes without --access-file; set limits there"))
	}
	f.requireAtLeast("max-unauthenticated-connections",
		c.MaxUnauthenticatedConnections, guard.MinUnauthenticatedConnections)
}

// checkRecords validates the settings of records beside jobs and of their display.
func (c *Config) checkRecords(f *configErrors) {
	f.requireBetween("audit-max-records", c.AuditMaxRecords, audittrail.MinKeep, audittrail.MaxKeep)
	f.require(c.AuditRetention >= audittrail.MinAge && c.AuditRetention <= audittrail.MaxAge, "audit-retention",
		c.AuditRetention, "%v to %v", audittrail.MinAge, audittrail.MaxAge)
	f.require(c.AuditMaxBytes >= audittrail.MinBytes && c.AuditMaxBytes <= audittrail.MaxBytes, "audit-max-bytes",
		c.AuditMaxBytes, "%d to %d", audittrail.MinBytes, audittrail.MaxBytes)
	f.require(c.JobRevisions >= 0 && c.JobRevisions <= job.MaxRevisions, "job-revisions", c.JobRevisions,
		"0 to %d", job.MaxRevisions)
	f.require(c.EventsKeep == 0 || c.EventsKeep >= redisstore.MinKeepEvents && c.EventsKeep <= redisstore.MaxKeepEvents,
		"events-keep", c.EventsKeep, "%d to %d, or 0 for none", redisstore.MinKeepEvents, redisstore.MaxKeepEvents)
	f.requireBetween("unsuccessful-runs-keep", c.UnsuccessfulRunsKeep, redisstore.MinKeepUnsuccessful,
		redisstore.MaxKeepUnsuccessful)
	f.require(c.UnsuccessfulRunsRetention >= redisstore.MinUnsuccessfulAge &&
		c.UnsuccessfulRunsRetention <= redisstore.MaxUnsuccessfulAge, "unsuccessful-runs-retention",
		c.UnsuccessfulRunsRetention, "%v to %v", redisstore.MinUnsuccessfulAge, redisstore.MaxUnsuccessfulAge)
	if c.WebhooksFile != "" && c.EventsKeep == 0 {
		*f = append(*f, errors.New("--webhooks-file needs --events-keep: without it no events are recorded"))
	}
	f.requireBetween("metrics-top-jobs", c.MetricsTopJobs, 0, maxWorstJobs)
}

// maxWorstJobs bounds the series that contain the id of a job.
const maxWorstJobs = 50
