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
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

const (
	// statsEvery is how often the sizes of queues are counted for the metrics.
	statsEvery = 5 * time.Second
	// checkEvery is how often Redis is looked at while running: its policy for
	// full memory and its persistence can be changed under our feet.
	checkEvery = 30 * time.Second
	// checkTimeout bounds one look.
	checkTimeout = 5 * time.Second
)

// until is how long it is until the next turn of what is done once a period.
func (n *Node) until(period time.Duration) time.Duration {
	return n.cadence.Until(time.Now(), period)
}

// statsLoop keeps the gauges of queues and the report on Redis up to date.
func (n *Node) statsLoop(ctx context.Context) {
	stats, check := time.NewTimer(n.until(statsEvery)), time.NewTimer(n.until(checkEvery))
	defer stats.Stop()
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stats.C:
			n.reloadKeys()
			n.reloadAuditKeys()
			n.telemetry.Tick()
			n.countQueues(ctx)
			n.findWorst(ctx)
			n.gauges.look(ctx, n)
			n.checkSchema(ctx)
			if n.rightsInDoubt() {
				n.lookAtRedis(ctx)
			}
			stats.Reset(n.until(statsEvery))
		case <-check.C:
			n.security.look()
			n.lookAtRedis(ctx)
			check.Reset(n.until(checkEvery))
		}
	}
}

// lookAtRedis checks Redis, and logs where that is not possible.
func (n *Node) lookAtRedis(ctx context.Context) {
	if err := n.checkRedis(ctx); err != nil && ctx.Err() == nil {
		n.cfg.Logger.Warn("redis could not be checked", "error", err)
	}
}

// rightsInDoubt reports whether Redis has refused a command for want of a right, or has when it was looked at
// last: whether the user has the right back shows by another look.
func (n *Node) rightsInDoubt() bool {
	if refusal := cmp.Or(n.store.Refusal(), n.clientStore.Refusal()); refusal != nil {
		n.refusal.Store(&refusal)
		return true
	}
	n.refusal.Store(nil)
	report := n.report.Load()
	return report != nil && report.Finds(redisstore.CodeGrant)
}

// reloadKeys takes over a payload key file that has changed.
func (n *Node) reloadKeys() {
	if n.keys == nil {
		return
	}
	before := n.keys.Fault()
	changed, err := n.keys.Reload()
	if err == nil && before != nil {
		n.cfg.Logger.Info("payload key file is valid again", "path", n.cfg.PayloadKeyFile)
	}
	switch {
	case err != nil:
		if before == nil || before.Error() != err.Error() {
			n.cfg.Logger.Error("payload key file is invalid, the keys read before stay in force", "error", err)
		}
	case changed:
		secretfile.WarnIfExposed(n.cfg.Logger, n.cfg.PayloadKeyFile)
		n.cfg.Logger.Info("payload keys are read again", "sealing", n.keys.Current(), "keys", n.keys.Count())
	}
}

// bindPayloads has payloads sealed by version 2 from when on all nodes of the keyspace know it.
func (n *Node) bindPayloads() error {
	switch schema := n.store.Schema(); {
	case n.keys == nil:
	case schema >= redisstore.SchemaOfBoundPayloads:
		n.keys.Bind()
	case n.keys.Strict():
		return fmt.Errorf("--payload-require-sealed: the schema of the keyspace is %d, and has to be %d first: see docs/upgrades.md",
			schema, redisstore.SchemaOfBoundPayloads)
	}
	return nil
}

// reloadAuditKeys takes over a file of audit keys that has changed.
func (n *Node) reloadAuditKeys() {
	signer := n.security.audit
	if signer == nil {
		return
	}
	before := signer.Fault()
	changed, err := signer.Reload()
	if err == nil && before != nil {
		n.cfg.Logger.Info("audit key file is valid again", "path", n.cfg.AuditKeyFile)
	}
	switch {
	case err != nil && before != nil && before.Error() == err.Error():
	case err != nil:
		n.cfg.Logger.Error("audit keys could not be read again: those read last stay", "error", err)
	case changed:
		n.cfg.Logger.Info("audit keys are read again", "signing", signer.Current().ID)
	}
}

// heldShards are those whose lock this node has.
func (n *Node) heldShards() []int {
	var held []int
	for _, shard := range n.allShards() {
		if _, ok := n.locks.Held(shard); ok {
			held = append(held, shard)
		}
	}
	return held
}

// findWorst counts the failing jobs of the shards that this node holds, and finds the
// worst by name if that was asked for.
func (n *Node) findWorst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	held := n.heldShards()
	ranks := make([]int64, len(telemetry.FailureDepths))
	for i, failures := range telemetry.FailureDepths {
		ranks[i] = job.RankOfFailures(failures)
	}
	var w telemetry.WorstJobs
	var err error
	if w.Failing, err = n.store.CountWorst(ctx, held, job.Failing, ranks); err != nil {
		return // the store logs what is wrong with Redis
	}
	if err = n.nameWorst(ctx, held, &w); err != nil {
		return
	}
	n.telemetry.SetWorst(w)
}

// nameWorst finds the worst jobs by name, as many as are shown. While no job fails and none is late that costs one
// command for each shard.
func (n *Node) nameWorst(ctx context.Context, held []int, w *telemetry.WorstJobs) (err error) {
	limit := n.cfg.WorstJobs
	if limit == 0 || len(held) == 0 {
		return nil
	}
	if w.Failing[0] > 0 {
		if w.MostFailing, err = n.registry.Top(ctx, job.TopQuery{Which: job.Failing, Limit: limit, Shards: held}); err != nil {
			return err
		}
	}
	late, err := n.store.CountWorst(ctx, held, job.Late, []int64{1})
	if err != nil || late[0] == 0 && !n.counts.anyWaits() {
		return err
	}
	w.Latest, err = n.registry.Top(ctx, job.TopQuery{Which: job.Late, Limit: limit, Shards: held})
	return err
}

// checkRedis looks at Redis and says plainly what is unsafe, once for each
// change.
func (n *Node) checkRedis(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	report, err := n.store.Check(ctx)
	if err != nil {
		return err
	}
	if refusal := n.refusal.Load(); refusal != nil && !report.Finds(redisstore.CodeGrant) {
		// Only some calls need it, and the node does the rest.
		report.Findings = append(report.Findings, redisstore.Finding{Severity: redisstore.Warning, Code: redisstore.CodeGrant, Text: (*refusal).Error()})
	}
	before := n.report.Swap(&report)
	n.gauges.report(report)
	for _, f := range report.Findings {
		if before != nil && knows(*before, f) {
			continue
		}
		log := n.cfg.Logger.Info
		if f.Severity >= redisstore.Warning {
			log = n.cfg.Logger.Warn
		}
		log("redis: "+f.Text, "code", f.Code, "server", f.Server, "severity", f.Severity.String())
	}
	return nil
}

// keyspaceFault is what the last look at Redis found wrong with the keyspace; "" for nothing.
func (n *Node) keyspaceFault() string {
	report := n.report.Load()
	if report == nil {
		return ""
	}
	for _, f := range report.Findings {
		if f.Code == "keyspace" && f.Severity == redisstore.Fatal {
			return f.Text
		}
	}
	return ""
}

// ErrSchema says that a later version has raised the schema of the keyspace.
var ErrSchema = redisstore.ErrSchema

// checkSchema follows the schema of the keyspace, and gives up when it belongs to a
// later version: what this one writes would not be understood any more.
func (n *Node) checkSchema(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := cmp.Or(n.store.CheckSchema(ctx), n.clientStore.CheckSchema(ctx))
	if fault := n.bindPayloads(); fault != nil {
		n.cfg.Logger.Warn("schema was lowered while the node runs", "error", fault)
	}
	if errors.Is(err, redisstore.ErrKeyspaceGone) {
		_ = n.checkRedis(ctx) // where Redis is away now, the next look follows soon
	}
	if !errors.Is(err, ErrSchema) {
		return // that Redis is away is told by others
	}
	select {
	case n.failed <- err:
		n.cfg.Logger.Error("node gives up", "error", err)
	default: // it has been told
	}
}

// Failed carries the error that a running node cannot go on with. It is for the
// caller to stop the node, without a drain.
func (n *Node) Failed() <-chan error { return n.failed }

func knows(r redisstore.Report, f redisstore.Finding) bool {
	for _, known := range r.Findings {
		if known == f {
			return true
		}
	}
	return false
}

// durability is the class in force.
func (n *Node) durability() string {
	r := n.report.Load()
	if r == nil {
		return ""
	}
	return min(r.Class, n.cfg.Durability).String()
}

// missing lists what keeps the node from being ready.
func (n *Node) missing() []string {
	if n.draining.Load() {
		return []string{"node: draining"}
	}
	if !n.up.Load() {
		if why := n.waitsFor.Load(); why != nil {
			return []string{*why}
		}
		return []string{"node: starting"}
	}
	ctx, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	if err := n.lockConns.Ping(ctx).Err(); err != nil {
		return []string{"redis: " + errText(redisstore.ExplainDenied(n.storeOptions(n.lockConns), err))}
	}
	if r := n.report.Load(); r != nil {
		for _, f := range r.Findings {
			if f.Severity == redisstore.Fatal && !(n.cfg.AllowUnsafe && f.Forgivable()) {
				return []string{"redis: " + f.Text}
			}
		}
	}
	if why := n.unheld.why.Load(); why != nil {
		return []string{*why}
	}
	return nil
}

func errText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within a second"
	}
	return err.Error()
}

// LogRedis sends what the Redis client library says of its connections to a
// logger instead of standard error. It is one setting of the process, to be made
// before the first node starts.
func LogRedis(l *slog.Logger) { redis.SetLogger(redisLog{l}) }

type redisLog struct{ logger *slog.Logger }

func (r redisLog) Printf(_ context.Context, format string, args ...any) {
	r.logger.Debug("redis client: " + fmt.Sprintf(format, args...))
}
