package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/librarylog"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

const (
	// queueStatsInterval is the interval of counting queues for the metrics.
	queueStatsInterval = 5 * time.Second
	// redisCheckInterval is the interval of checks of Redis: its eviction policy and its persistence can be
	// changed while the node runs.
	redisCheckInterval = 30 * time.Second
	// checkTimeout bounds one check.
	checkTimeout = 5 * time.Second
)

// untilNextRound is the time until the next round of periodic work.
func (n *Node) untilNextRound(period time.Duration) time.Duration {
	return n.alignment.UntilNext(time.Now(), period)
}

// statsLoop updates the gauges of queues and the report on Redis.
func (n *Node) statsLoop(ctx context.Context) {
	stats := time.NewTimer(n.untilNextRound(queueStatsInterval))
	check := time.NewTimer(n.untilNextRound(redisCheckInterval))
	defer stats.Stop()
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stats.C:
			n.reloadKeyFiles()
			n.telemetry.EndInterval()
			n.countQueues(ctx)
			n.updateFailingJobs(ctx)
			n.gauges.refresh(ctx, n)
			n.compareEventsKeep()
			n.compareDefaults()
			n.checkSchema(ctx)
			n.spreadWorkers(time.Now())
			if n.hasRefusedRights() {
				n.recheckRedis(ctx)
			}
			stats.Reset(n.untilNextRound(queueStatsInterval))
		case <-check.C:
			n.security.checkFiles()
			n.recheckRedis(ctx)
			check.Reset(n.untilNextRound(redisCheckInterval))
		}
	}
}

// recheckRedis checks Redis, and logs if that fails.
func (n *Node) recheckRedis(ctx context.Context) {
	if err := n.checkRedis(ctx); err != nil && ctx.Err() == nil {
		n.cfg.Logger.Warn("failed to check redis", "error", err)
	}
}

// hasRefusedRights reports whether Redis has refused a command for lack of a right, now or at the last check:
// another check shows whether the user has the right again.
func (n *Node) hasRefusedRights() bool {
	if refusal := cmp.Or(n.store.Refusal(), n.clientStore.Refusal()); refusal != nil {
		n.refusedRight.Store(&refusal)
		return true
	}
	n.refusedRight.Store(nil)
	report := n.report.Load()
	return report != nil && report.Finds(redisstore.CodeGrant)
}

// reloadKeyFiles reloads changed files of keys for payloads and for the audit trail.
func (n *Node) reloadKeyFiles() {
	if n.keys != nil && n.keys.Reload(n.cfg.Logger) {
		secretfile.WarnIfExposed(n.cfg.Logger, n.cfg.PayloadKeyFile)
		n.cfg.Logger.Info("payload keys reloaded", "sealing", n.keys.EncryptingKeyID(), "keys", n.keys.Count())
	}
	if signer := n.security.audit; signer != nil && signer.Reload(n.cfg.Logger) {
		secretfile.WarnIfExposed(n.cfg.Logger, n.cfg.AuditKeyFile)
		keys := signer.Keys()
		n.cfg.Logger.Info("audit keys reloaded", "signing", keys[0].ID, "keys", len(keys))
	}
}

// bindPayloads starts to encrypt payloads by version 2 when all nodes of the keyspace support it.
func (n *Node) bindPayloads() error {
	switch schema := n.store.Schema(); {
	case n.keys == nil:
	case schema >= redisstore.SchemaOfBoundPayloads:
		n.keys.UseVersion2()
	case n.keys.RequiresVersion2():
		return fmt.Errorf("--payload-require-sealed: the schema of the keyspace is %d, and has to be %d first: see "+
			"docs/upgrades.md",
			schema, redisstore.SchemaOfBoundPayloads)
	}
	return nil
}

// heldShards are the shards whose lock this node holds.
func (n *Node) heldShards() []int {
	var held []int
	for _, shard := range n.allShards() {
		if _, ok := n.locks.ValidLock(shard); ok {
			held = append(held, shard)
		}
	}
	return held
}

// updateFailingJobs counts the failing jobs of the shards that this node holds, and lists the worst by name if
// configured.
func (n *Node) updateFailingJobs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	held := n.heldShards()
	ranks := make([]int64, len(telemetry.FailureDepths))
	for i, failures := range telemetry.FailureDepths {
		ranks[i] = job.RankOfFailures(failures)
	}
	var w telemetry.TopJobs
	var err error
	w.Failing, err = n.store.CountRanked(ctx, held, job.RankingFailing, ranks)
	if err != nil {
		return // the store logs errors of Redis
	}
	err = n.listWorstJobs(ctx, held, &w)
	if err != nil {
		return
	}
	n.telemetry.SetTopJobs(w)
}

// listWorstJobs lists the worst jobs by name, up to the configured number. While no job fails and none is late,
// it costs one command per shard.
func (n *Node) listWorstJobs(ctx context.Context, held []int, w *telemetry.TopJobs) error {
	limit := n.cfg.MetricsTopJobs
	if limit == 0 || len(held) == 0 {
		return nil
	}
	if w.Failing[0] > 0 {
		failing, err := n.registry.TopJobs(ctx, job.TopQuery{Ranking: job.RankingFailing, Limit: limit, Shards: held})
		if err != nil {
			return err
		}
		w.MostFailing = failing.Jobs
	}
	late, err := n.store.CountRanked(ctx, held, job.RankingLate, []int64{1})
	if err != nil || late[0] == 0 && !n.counts.HasBacklog() {
		return err
	}
	latest, err := n.registry.TopJobs(ctx, job.TopQuery{Ranking: job.RankingLate, Limit: limit, Shards: held})
	w.Latest = latest.Jobs
	return err
}

// checkRedis checks Redis and logs its findings, once for each change.
func (n *Node) checkRedis(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	report, err := n.store.Check(ctx)
	if err != nil {
		return err
	}
	if refusal := n.refusedRight.Load(); refusal != nil && !report.Finds(redisstore.CodeGrant) {
		// Only some calls need the right; the node does the rest.
		report.Findings = append(report.Findings,
			conn.Finding{Severity: conn.Warning, Code: redisstore.CodeGrant, Text: (*refusal).Error()})
	}
	before := n.report.Swap(&report)
	n.gauges.setFindings(report)
	for _, f := range report.Findings {
		if before != nil && reportHasFinding(*before, f) {
			continue
		}
		log := n.cfg.Logger.Info
		if f.Severity >= conn.Warning {
			log = n.cfg.Logger.Warn
		}
		log("redis: "+f.Text, "code", f.Code, "server", f.Server, "severity", f.Severity.String())
	}
	return nil
}

// keyspaceError is the fault of the keyspace at the last check of Redis; "" for none.
func (n *Node) keyspaceError() string {
	report := n.report.Load()
	if report == nil {
		return ""
	}
	for _, f := range report.Findings {
		if f.Code == "keyspace" && f.Severity == conn.Fatal {
			return f.Text
		}
	}
	return ""
}

// ErrSchema means that a later version has raised the schema of the keyspace.
var ErrSchema = rediserr.ErrSchema

// checkSchema checks the schema of the keyspace. If it belongs to a later version, the node fails: that version
// could not read what this node writes.
func (n *Node) checkSchema(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := cmp.Or(n.store.CheckSchema(ctx), n.clientStore.CheckSchema(ctx))
	if fault := n.bindPayloads(); fault != nil {
		n.cfg.Logger.Warn("keyspace schema was lowered while the node runs", "error", fault)
	}
	if errors.Is(err, rediserr.ErrKeyspaceGone) {
		_ = n.checkRedis(ctx) // if Redis is unavailable now, the next check follows soon
	}
	if !errors.Is(err, ErrSchema) {
		return // other metrics show that Redis is unavailable
	}
	select {
	case n.failed <- err:
		n.cfg.Logger.Error("node failed, a later version has raised the keyspace schema", "error", err)
	default: // already sent
	}
}

// Failed carries the error after which a running node cannot continue. The caller stops the node, without a
// drain.
func (n *Node) Failed() <-chan error { return n.failed }

func reportHasFinding(r conn.Report, f conn.Finding) bool {
	for _, known := range r.Findings {
		if known == f {
			return true
		}
	}
	return false
}

// durabilityClass is the class in force.
func (n *Node) durabilityClass() string {
	r := n.report.Load()
	if r == nil {
		return ""
	}
	return min(r.Class, n.cfg.Durability).String()
}

// unreadyReasons lists the reasons why the node is not ready.
func (n *Node) unreadyReasons() []string {
	if n.draining.Load() {
		return []string{"node: draining"}
	}
	if !n.started.Load() {
		if why := n.redisWaitReason.Load(); why != nil {
			return []string{*why}
		}
		return []string{"node: starting"}
	}
	ctx, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	if err := n.lockConns.Ping(ctx).Err(); err != nil {
		return []string{"redis: " + errorText(redisstore.ExplainDenied(n.storeOptions(n.lockConns), err))}
	}
	if r := n.report.Load(); r != nil {
		for _, f := range r.Findings {
			if f.Severity == conn.Fatal && !(n.cfg.AllowUnsafeRedis && f.Forgivable()) {
				return []string{"redis: " + f.Text}
			}
		}
	}
	if why := n.unheld.reason.Load(); why != nil {
		return []string{*why}
	}
	return nil
}

func errorText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within a second"
	}
	return err.Error()
}

// LogRedis sends the log of the Redis client library to a logger instead of standard error. It is a setting of
// the whole process, to be made before the first node starts.
func LogRedis(l *slog.Logger) { redis.SetLogger(redisLog{l}) }

type redisLog struct{ logger *slog.Logger }

func (r redisLog) Printf(_ context.Context, format string, args ...any) {
	librarylog.Log(r.logger, slog.LevelDebug, "message of the Redis client", fmt.Sprintf(format, args...))
}
