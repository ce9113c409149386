package node

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/payload"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/engine/dispatch"
	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// faults collects what is wrong with a configuration, each under the name of its flag.
type faults []error

// want adds a fault unless ok.
func (f *faults) want(ok bool, flag string, value any, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf("--%s %v: want %s", flag, value, fmt.Sprintf(format, args...)))
	}
}

// between wants low to high.
func (f *faults) between(flag string, value, low, high int) {
	f.want(value >= low && value <= high, flag, value, "%d to %d", low, high)
}

// atLeast wants low or more.
func (f *faults) atLeast(flag string, value, low int) {
	f.want(value >= low, flag, value, "%d or more", low)
}

// lasting wants low or more.
func (f *faults) lasting(flag string, value, low time.Duration) {
	f.want(value >= low, flag, value, "%v or more", low)
}

// validate says all at once, and before Redis is asked, what the parts would refuse one
// after the other. Defaults have been set.
func (c *Config) validate() error {
	var f faults
	c.checkName(&f)
	c.checkAddresses(&f)
	c.checkRedis(&f)
	c.checkJobs(&f)
	c.checkCallers(&f)
	c.checkRecords(&f)
	return errors.Join(append(f, c.checkExposure())...)
}

func (c *Config) checkName(f *faults) {
	if c.Name == "" {
		*f = append(*f, errors.New("--name: a node needs one"))
	}
	unfit := redisstore.ClientNameFault(c.Name) != "" || strings.Contains(c.Name, shardlock.Separator)
	f.want(!unfit, "name", strconv.Quote(c.Name), "visible ASCII characters, without spaces and %s", shardlock.Separator)
	f.want(len(c.Cluster) <= membership.MaxLabel, "cluster", strconv.Quote(c.Cluster), "%d bytes or fewer", membership.MaxLabel)
}

func (c *Config) checkAddresses(f *faults) {
	for _, a := range []struct{ flag, addr string }{
		{"grpc-addr", c.GRPCAddr}, {"peer-addr", c.PeerAddr}, {"http-addr", c.HTTPAddr},
	} {
		_, _, ok := hostPort(a.addr)
		f.want(ok, a.flag, strconv.Quote(a.addr), "host:port")
	}
	for _, a := range []struct{ flag, addr string }{
		{"advertise-grpc", c.AdvertiseGRPC}, {"advertise-peer", c.AdvertisePeer},
	} {
		host, port, ok := hostPort(a.addr)
		f.want(a.addr == "" || ok && host != "" && port != 0, a.flag, strconv.Quote(a.addr), "host:port that others can connect to")
	}
	host, _, ok := hostPort(c.GossipAddr)
	f.want(ok && (host == "" || net.ParseIP(host) != nil), "gossip-addr", strconv.Quote(c.GossipAddr), "host:port with an IP address")
	host, port, ok := hostPort(c.AdvertiseGossip)
	f.want(c.AdvertiseGossip == "" || ok && net.ParseIP(host) != nil && port != 0, "advertise-gossip", strconv.Quote(c.AdvertiseGossip),
		"host:port that others can connect to, with an IP address")
}

// hostPort splits an address whose port is a number.
func hostPort(addr string) (host string, port int, ok bool) {
	host, port, err := splitHostPort(addr)
	return host, port, err == nil && port >= 0 && port <= 65535
}

func (c *Config) checkRedis(f *faults) {
	f.between("redis-pool-size", c.Redis.PoolSize, 1, redisstore.MaxPoolSize)
	f.lasting("redis-timeout", c.Redis.ReadTimeout, time.Millisecond)
	f.want(c.RedisWait >= 0, "redis-wait", c.RedisWait, "0 or more")
	f.between("shards", c.Shards, 1, redisstore.MaxShards)
	if err := redisacl.CheckKeyspace(c.Keyspace); err != nil {
		*f = append(*f, fmt.Errorf("--keyspace: %w", err))
	}
	f.atLeast("durability-replicas", c.DurabilityReplicas, 1)
	f.lasting("durability-timeout", c.DurabilityTimeout, redisstore.MinWaitTimeout)
	// WAIT is answered after at most one, the answer is waited for at most the other.
	f.want(c.Durability != redisstore.DurabilityReplica || c.DurabilityTimeout < c.Redis.ReadTimeout,
		"durability-timeout", c.DurabilityTimeout, "less than --redis-timeout, which is %v", c.Redis.ReadTimeout)
	f.want(c.LockTTL >= shardlock.MinTTL && c.LockTTL%time.Millisecond == 0, "lock-ttl", c.LockTTL, "%v or more, in whole milliseconds", shardlock.MinTTL)
}

func (c *Config) checkJobs(f *faults) {
	f.lasting("lease-ttl", c.LeaseTTL, dispatch.MinLeaseTTL)
	f.lasting("session-ttl", c.SessionTTL, dispatch.MinSessionTTL)
	f.lasting("min-interval", c.Limits.MinInterval, time.Millisecond)
	f.want(c.Limits.MaxPayload >= 1 && c.Limits.MaxPayload <= rpc.MaxPayload, "max-payload", c.Limits.MaxPayload,
		"1 to %d: a message has 16 MiB, and room for the rest of a job", rpc.MaxPayload)
	for _, handler := range c.ValidatePayloads {
		f.want(slices.Contains(payload.Handlers(), handler), "validate-payloads", strconv.Quote(handler), "some of %s", strings.Join(payload.Handlers(), ", "))
	}
	f.want(c.NamespaceJobs >= 0 && c.NamespaceJobs <= authz.MaxNamespaceJobs, "namespace-jobs", c.NamespaceJobs,
		"0 (no limit) to %d", authz.MaxNamespaceJobs)
	f.want(c.NamespaceJobBytes >= 0 && c.NamespaceJobBytes <= authz.MaxNamespaceJobBytes, "namespace-job-bytes", c.NamespaceJobBytes,
		"0 (no limit) to %d", authz.MaxNamespaceJobBytes)
}

func (c *Config) checkCallers(f *faults) {
	l := c.ClientLimits
	f.want(l.Rate >= 0 && l.Rate <= authz.MaxRate, "client-rate", l.Rate, "0 (no limit) to %d", authz.MaxRate)
	f.want(l.Burst >= 0, "client-burst", l.Burst, "0 or more")
	f.want(l.Burst <= 0 || l.Rate != 0, "client-burst", l.Burst, "--client-rate with it")
	f.want(l.Calls >= 0, "client-calls", l.Calls, "0 (no limit) or more")
	f.want(l.Connections >= 0, "client-connections", l.Connections, "0 (no limit) or more")
	if c.Authenticates() && l != (authz.Limits{}) {
		*f = append(*f, errors.New("--client-rate, --client-burst, --client-calls and --client-connections are for nodes without --access-file; set limits there"))
	}
	f.atLeast("unproved-connections", c.UnprovedConnections, rpc.MinUnproved)
}

// checkRecords is about what is kept beside jobs, and shown of them.
func (c *Config) checkRecords(f *faults) {
	f.between("audit-keep", c.AuditKeep, audittrail.MinKeep, audittrail.MaxKeep)
	f.want(c.AuditRetention >= audittrail.MinAge && c.AuditRetention <= audittrail.MaxAge, "audit-retention", c.AuditRetention, "%v to %v", audittrail.MinAge, audittrail.MaxAge)
	f.want(c.AuditMaxBytes >= audittrail.MinBytes && c.AuditMaxBytes <= audittrail.MaxBytes, "audit-max-bytes", c.AuditMaxBytes, "%d to %d", audittrail.MinBytes, audittrail.MaxBytes)
	f.want(c.EventsKeep == 0 || c.EventsKeep >= redisstore.MinKeepEvents && c.EventsKeep <= redisstore.MaxKeepEvents,
		"events-keep", c.EventsKeep, "%d to %d, or 0 for none", redisstore.MinKeepEvents, redisstore.MaxKeepEvents)
	if c.WebhooksFile != "" && c.EventsKeep == 0 {
		*f = append(*f, errors.New("--webhooks-file needs --events-keep: without it no events are recorded"))
	}
	f.between("worst-jobs", c.WorstJobs, 0, maxWorstJobs)
}

// maxWorstJobs bounds the series that carry the id of a job.
const maxWorstJobs = 50
