package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/cli/config"
	"github.com/fermata-io/fermata/internal/cli/redisflags"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/observe/logs"
	"github.com/fermata-io/fermata/internal/observe/tracing"
)

// nodeFlags are the flags of a node beside those that go straight into its
// configuration.
type nodeFlags struct {
	redis         *redisflags.Secrets
	durability    string
	logs          logs.Options
	traceEndpoint string
	drainTimeout  time.Duration
	defaults      policyDefaults
}

// nonZeroFlags are flags whose default would silently replace 0.
var nonZeroFlags = []string{
	"lock-ttl", "lease-ttl", "session-ttl", "min-interval", "max-payload", "audit-max-records", "audit-retention",
	"unsuccessful-runs-keep", "unsuccessful-runs-retention",
	"audit-max-bytes", "redis-pool-size", "redis-timeout",
	"durability-replicas", "durability-timeout",
}

const nodeHelp = `Run a scheduler node.

A node keeps due jobs in Redis, leases them to workers that connect to it, and
shares the work with the other nodes of its cluster. Start as many as you like,
in any order; any of them can be stopped or killed at any moment.

Every flag can be set by an environment variable (--redis-url is
FERMATA_REDIS_URL) or in a YAML file named by --config, in this order of
precedence: flag, environment, file, default.

SIGTERM and SIGINT drain: the node hands its shards and workers over and waits
for what they still report, up to --drain-timeout. A second signal stops at
once, which is no worse than a crash; a third one kills the process.

Exit codes: 0 after a clean stop, 1 on failure, 2 on wrong usage, 3 when a later
version has raised the schema of the keyspace.`

func nodeCommand(abort <-chan struct{}) *cobra.Command {
	var cfg node.Config
	var f nodeFlags
	cmd := &cobra.Command{
		Use: "scheduler", Short: "Run a scheduler node", Long: nodeHelp, Args: noArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Load(cmd, "FERMATA"); err != nil {
				return usageError{err}
			}
			cfg.Defaults = f.defaults.setLayer(cmd.Flags().Changed)
			share := ""
			if s := cmd.Flags().Lookup("trace-sample"); s.Changed {
				share = s.Value.String()
			}
			faults := errors.Join(f.completeConfig(&cfg, share), config.RequirePositive(cmd.Flags(), nonZeroFlags...))
			n, err := node.New(cfg)
			if err := errors.Join(faults, err); err != nil {
				return usageError{err}
			}
			node.LogRedis(cfg.Logger)
			for _, variable := range config.UnreadVariables(cmd.Flags(), "FERMATA") {
				cfg.Logger.Warn("environment variable is not used", "name", variable.Name, "meant", variable.Meant)
			}
			return runNode(cmd.Context(), n, cfg.Logger, f.drainTimeout, abort)
		},
	}
	flags := cmd.Flags()
	flags.String("config", "", "YAML file with values for these flags")
	flags.StringVar(&cfg.Name, "name", "", "name of this node, unique in the cluster and the same after a restart, "+
		"of visible ASCII without spaces and | (default: host name and a random suffix)")
	flags.StringVar(&cfg.GRPCAddr, "grpc-addr", "127.0.0.1:7070", "listen here for clients and workers")
	flags.StringVar(&cfg.PeerAddr, "peer-addr", "127.0.0.1:7071", "listen here for other nodes")
	flags.StringVar(&cfg.GossipAddr, "gossip-addr", "127.0.0.1:7946", "listen here for gossip, TCP and UDP")
	flags.StringVar(&cfg.HTTPAddr, "http-addr", "127.0.0.1:7072", "serve /metrics, /healthz and /readyz here")
	flags.StringVar(&cfg.AdvertiseGRPC, "advertise-grpc", "",
		"address, host:port, that nodes give to workers (default: the listening address)")
	flags.StringVar(&cfg.AdvertisePeer, "advertise-peer", "",
		"address, host:port, that this node gives to other nodes (default: the listening address)")
	flags.StringVar(&cfg.AdvertiseGossip, "advertise-gossip", "",
		"gossip address, IP:port, that this node gives to other nodes (default: the listening address)")
	flags.StringSliceVar(&cfg.Join, "join", nil, "gossip addresses or DNS names of other nodes")
	flags.StringVar(&cfg.GossipKeyFile, "gossip-key-file", "",
		"file with the keys that encrypt gossip, the base64 of 16, 24 or 32 bytes on each line; the first one "+
			"encrypts, all decrypt; read again when it changes")
	flags.StringSliceVar(&cfg.GossipAllow, "gossip-allow", nil,
		"networks, such as 10.0.0.0/8, that other nodes may be in and gossip may come from (default: any)")
	flags.StringVar(&cfg.Cluster, "cluster", "",
		"label of the cluster; nodes of another one are refused (default: the keyspace)")
	flags.StringVar(&cfg.AccessFile, "access-file", "",
		"YAML file with the roles of callers, reloaded when it changes; without it every caller may do anything")
	flags.Float64Var(&cfg.ClientLimits.Rate, "client-rate", 0,
		"calls a second from each host, without --access-file; 0: no limit")
	flags.IntVar(&cfg.ClientLimits.Burst, "client-burst", 0, "calls from each host at once beyond --client-rate")
	flags.IntVar(&cfg.ClientLimits.MaxOpenCalls, "client-calls", 0,
		"calls and streams that each host may have open, without --access-file; 0: no limit")
	flags.IntVar(&cfg.ClientLimits.Connections, "client-connections", 0,
		"connections of each host, without --access-file; 0: no limit")
	flags.IntVar(&cfg.NamespaceJobs, "namespace-jobs", 0,
		"most jobs in a namespace for which the access file sets no limit; 0: no limit")
	flags.IntVar(&cfg.NamespaceJobBytes, "namespace-job-bytes", 0,
		"most bytes of the jobs, with their ids, stored definitions, histories and dead letters, in a namespace "+
			"for which the access file sets no limit; 0: no limit")
	flags.IntVar(&cfg.MaxUnauthenticatedConnections, "max-unauthenticated-connections", 0,
		"most open connections whose caller is not authenticated yet; at most a quarter of them from one address, "+
			"each for a minute (default: 4096, or if less, a quarter of the files that the process may open, "+
			"or one for each 256 KiB of its memory limit)")
	tlsFlags(cmd, &cfg)
	redisFlags(cmd, &cfg, &f)
	config.DurationVar(flags, &cfg.LockTTL, "lock-ttl", 10*time.Second,
		"life of a shard's lock without refresh: how long a node that froze or lost its host keeps its shards; 1s "+
			"or more")
	config.DurationVar(flags, &cfg.LeaseTTL, "lease-ttl", 30*time.Second,
		"life of an attempt's lease without renewal: how long runs wait whose node died together with their "+
			"worker; 1s or more")
	config.DurationVar(flags, &cfg.SessionTTL, "session-ttl", 8*time.Second,
		"life of a worker's session without a heartbeat: how long a dead worker keeps its runs; 1s or more; more "+
			"than two thirds of --lease-ttl counts as that")
	config.DurationVar(flags, &cfg.Limits.MinInterval, "min-interval", 5*time.Second,
		"shortest interval that a job may have")
	flags.IntVar(&cfg.Limits.MaxPayload, "max-payload", 256<<10,
		"largest payload of a job, in bytes, at most 10485760 (10 MiB): a message has 16 MiB, and room for the "+
			"rest of a job")
	flags.IntVar(&cfg.JobRevisions, "job-revisions", job.DefaultRevisions,
		"number of earlier definitions that are kept of each job, 0 to 50, the same on all nodes; 0: none, and the next "+
			"edit of a job removes those that it has; see docs/revisions.md")
	f.defaults.registerFlags(flags)
	flags.StringVar(&cfg.DefaultsFile, "defaults-file", "",
		"YAML file with defaults of retry and backoff for the cluster, namespaces and queues, and with presets, "+
			"the same on all nodes; see docs/scheduling.md")
	flags.StringVar(&cfg.PayloadKeyFile, "payload-key-file", "",
		"file with the keys that seal payloads in Redis, a line \"id base64key\" each, the sealing one first; see "+
			"docs/security/payloads.md (default: payloads are stored as given)")
	flags.BoolVar(&cfg.PayloadRequireSealed, "payload-require-sealed", false,
		"hand out only payloads that are sealed and bound to their queue and handler; set it on all nodes, with "+
			"--payload-key-file, after fermata payloads reseal has sealed all payloads; see docs/security/payloads.md")
	flags.StringSliceVar(&cfg.ValidatePayloads, "validate-payloads", node.CheckedHandlers(),
		"ready-made handlers whose payloads are checked when a job is created or changed; leave out http or exec "+
			"where workers of your own have a handler of that name, and give \"\" to check none; see docs/workers.md")
	flags.IntVar(&cfg.MetricsTopJobs, "metrics-top-jobs", 10,
		"number of the latest and of the longest failing jobs of this node that /metrics shows by name, 1 to 50; "+
			"0: no name of a job is shown; see docs/metrics.md")
	flags.IntVar(&cfg.EventsKeep, "events-keep", 0,
		"about how many events are kept in Redis for watchers and webhooks, 1,000 to 10,000,000, the same on all "+
			"nodes; see docs/events.md (default: none are recorded)")
	flags.StringVar(&cfg.WebhooksFile, "webhooks-file", "",
		"YAML file with the webhooks that receive events, reloaded when it changes; needs --events-keep")
	flags.IntVar(&cfg.UnsuccessfulRunsKeep, "unsuccessful-runs-keep", 64_000,
		"about how many runs that ended without success are kept in Redis for lists of them, of each queue: 1,000 to "+
			"10,000,000, the same on all nodes; see docs/how-to/what-failed.md")
	config.DurationVar(flags, &cfg.UnsuccessfulRunsRetention, "unsuccessful-runs-retention", 7*24*time.Hour,
		"about how long they are kept, 1h to 8760h, the same on all nodes")
	flags.IntVar(&cfg.AuditMaxRecords, "audit-max-records", 100_000,
		"about how many audit records are kept in Redis, 100 to 10,000,000; see docs/security/audit.md")
	config.DurationVar(flags, &cfg.AuditRetention, "audit-retention", 90*24*time.Hour,
		"about how long an audit record is kept, 1h to 87600h")
	flags.Int64Var(&cfg.AuditMaxBytes, "audit-max-bytes", 64<<20,
		"about how many bytes all audit records may take in Redis, 1048576 (1 MiB) to 68719476736 (64 GiB); it "+
			"also holds for records that exports have not acknowledged")
	flags.StringVar(&cfg.AuditKeyFile, "audit-key-file", "",
		"file with the keys that sign the chain of audit records, a line \"private id base64seed\" each, the "+
			"signing one first, read again when it changes; 'scheduler audit-key new' makes one (default: the chain is "+
			"not signed)")
	config.DurationVar(flags, &f.drainTimeout, "drain-timeout", 30*time.Second,
		"how long a stop may wait for running work")
	flags.StringVar(&f.traceEndpoint, "trace-endpoint", "",
		"send the traces of runs to this OpenTelemetry collector, by OTLP over gRPC: http://host:4317, or "+
			"https://host:4317 for TLS; see docs/tracing.md (default: OTEL_EXPORTER_OTLP_ENDPOINT, or nowhere)")
	flags.Float64("trace-sample", tracing.DefaultShare,
		"share of the runs that are traced, 0 to 1; runs that a traced call started are always traced")
	flags.StringVar(&f.logs.Format, "log-format", "text", "text or json")
	flags.StringVar(&f.logs.Level, "log-level", "info",
		"debug, info, warn or error; fermata log-level changes it while the node runs")
	flags.IntVar(&f.logs.Limit, "log-repeat-limit", logs.DefaultLimit,
		"most log lines in ten seconds with the same message about the same job; ten times as many with the same "+
			"message about all jobs; further lines are counted; 0: no limit")
	return cmd
}

func tlsFlags(cmd *cobra.Command, cfg *node.Config) {
	flags := cmd.Flags()
	flags.StringVar(&cfg.TLS.Cert, "tls-cert", "",
		"PEM file with the certificate for clients and workers; without it they speak plain text. All TLS files "+
			"are read again when they change")
	flags.StringVar(&cfg.TLS.Key, "tls-key", "", "PEM file with its key")
	flags.StringVar(&cfg.TLS.Authorities, "tls-client-ca", "",
		"PEM file with the authority of clients' and workers' certificates; without it they need none")
	flags.StringVar(&cfg.ClientAuth, "tls-client-auth", "",
		"none, optional or required: whether clients and workers need a certificate (default: required with "+
			"--tls-client-ca)")
	flags.StringVar(&cfg.PeerTLS.Cert, "peer-tls-cert", "",
		"PEM file with this node's certificate for other nodes; without it they speak plain text")
	flags.StringVar(&cfg.PeerTLS.Key, "peer-tls-key", "", "PEM file with its key")
	flags.StringVar(&cfg.PeerTLS.Authorities, "peer-tls-ca", "", "PEM file with the authority of the nodes' certificates")
	flags.StringSliceVar(&cfg.PeerNames, "peer-tls-names", nil,
		"DNS names (also *.example.org) and URIs (also spiffe://example.org/path/*) of nodes; a peer is accepted "+
			"only if its certificate has at least one of them (default: the URIs of this node's own certificate, or "+
			"its DNS names if it has no URI)")
	flags.BoolVar(&cfg.Insecure, "insecure", false,
		"listen where other hosts can reach it without TLS, or without a gossip key")
	flags.BoolVar(&cfg.Reflection, "reflection", false,
		"describe the services to gRPC clients that ask, such as grpcurl")
}

func redisFlags(cmd *cobra.Command, cfg *node.Config, f *nodeFlags) {
	flags := cmd.Flags()
	f.redis = redisflags.Add(flags, &cfg.Redis, &cfg.RedisTLS)
	flags.IntVar(&cfg.Redis.PoolSize, "redis-pool-size", 16,
		"connections to each Redis server, for each of three pools, 1 to 100000")
	config.DurationVar(flags, &cfg.Redis.ReadTimeout, "redis-timeout", time.Second, "longest wait for one answer of Redis")
	config.DurationVar(flags, &cfg.RedisStartupTimeout, "redis-startup-timeout", time.Minute,
		"how long a start waits for a Redis that cannot be reached, is loading, or has too few replicas yet; 0: it "+
			"fails at once")
	flags.StringVar(&cfg.Keyspace, "keyspace", "fermata",
		"prefix of all keys; clusters with different ones can share a Redis")
	flags.IntVar(&cfg.Shards, "shards", 0, "number of shards, 1 to 4096, fixed when the keyspace is created; 0: the "+
		"number that it has, and for a new one 16, or 64 in a Redis Cluster; 64 for more than 8 nodes, 256 for more "+
		"than five million jobs")
	flags.StringVar(&f.durability, "durability", "local",
		"memory, local or replica: what an acknowledged write must survive; see docs/guarantees.md")
	flags.IntVar(&cfg.DurabilityReplicas, "durability-replicas", 1,
		"replicas that confirm a write under --durability replica")
	config.DurationVar(flags, &cfg.DurabilityTimeout, "durability-timeout", 500*time.Millisecond,
		"longest wait for their confirmation")
	flags.BoolVar(&cfg.RedisFunctions, "redis-functions", false,
		"call functions that 'fermata redis functions --load' has brought to Redis, so that the user of the nodes "+
			"needs no EVAL; see docs/security/redis.md")
	flags.BoolVar(&cfg.AllowUnsafeRedis, "allow-unsafe-redis", false, "run on a Redis that may evict keys or lose writes")
}

// redisPasswordHelp is a URL of Redis that has a password.
var redisPasswordHelp = regexp.MustCompile(`(^|=)(?i:rediss?(\+[a-z]+)?)://[^/@]*:[^@]+@`)

// completeConfig turns the remaining flags into configuration.
func (f nodeFlags) completeConfig(cfg *node.Config, traceShare string) (err error) {
	cfg.Version = buildVersion
	if cfg.Name == "" {
		host, _ := os.Hostname()
		cfg.Name = strings.ToLower(strings.TrimSuffix(host+"-"+rand.Text()[:6], "-"))
	}
	errs := []error{f.redis.Read()}
	cfg.Durability, err = node.ParseDurability(f.durability)
	if err != nil {
		errs = append(errs, fmt.Errorf("--%w", err))
	}
	logger, level, err := logs.New(os.Stderr, f.logs)
	errs = append(errs, err)
	cfg.Logger, cfg.LogLevel = logger, level
	if err == nil && slices.ContainsFunc(os.Args[1:], redisPasswordHelp.MatchString) {
		logger.Warn("the password of Redis is an argument of this process and visible to other users of this host: use " +
			"--redis-password-file or FERMATA_REDIS_URL")
	}
	for _, path := range f.redis.Files() {
		secretfile.WarnIfExposed(logger, path)
	}
	cfg.Tracing, err = tracing.CompleteSettings(f.traceEndpoint, traceShare, os.Getenv)
	errs = append(errs, err)
	if f.drainTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--drain-timeout %v: must be positive", f.drainTimeout))
	}
	return errors.Join(errs...)
}

// runNode runs a node until ctx ends, then drains it until abort is closed. A node
// that cannot go on is stopped at once.
func runNode(ctx context.Context, n *node.Node, logger *slog.Logger, drainTimeout time.Duration,
	abort <-chan struct{}) error {
	if err := n.Start(ctx); err != nil {
		if ctx.Err() != nil {
			logger.Info("node stopped while it started", "error", err)
			return nil
		}
		return err
	}
	select {
	case <-ctx.Done():
	case err := <-n.Failed():
		now, cancel := context.WithCancel(ctx)
		cancel()
		if undone := n.Stop(now); undone != nil {
			logger.Warn("node stopped before all its work was handed over", "error", undone)
		}
		return err
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	go func() {
		select {
		case <-abort:
			cancel()
		case <-drain.Done():
		}
	}()
	return n.Stop(drain)
}
