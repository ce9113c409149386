package reachability

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Report is the state of a node's connection to Redis, as published to the other nodes.
type Report struct {
	Withdrawn bool // the node is to own no shards
	// Unreachable is the number of Redis primaries that do not answer the node; -1: unknown, or not published.
	Unreachable int
	Latency     time.Duration // of its calls to Redis; 0: unknown, or not published
}

// Options configure a monitor. LockTTL, Client, Latency, LastLockAnswer, Peers and Publish are required.
type Options struct {
	LockTTL time.Duration
	Client  redis.UniversalClient // its primaries are pinged
	Latency *LatencyMeter
	// LastLockAnswer returns when Redis last answered a call that keeps locks, within that call's timeout. There are
	// several such calls per lock TTL while other nodes are alive.
	LastLockAnswer func() time.Time
	// Peers returns the reports of the other nodes that could own shards, and whether any other node is alive.
	Peers func() (anyAlive bool, owners []Report)
	// Publish sets the report that the other nodes receive. It is called several times per lock TTL, also with the
	// same report: it repairs what was lost, and does not wait.
	Publish func(Report) error
	// OnChange is called when Redis stops answering this node, or answers again.
	OnChange func()
	// OnWithdraw is called when this node withdraws, and when it returns.
	OnWithdraw func(withdrawn bool)
	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil registers nothing
}

// Monitor observes the connection of this node to Redis, and withdraws the node from shard ownership if others
// should own its shards.
type Monitor struct {
	options    Options
	metrics    metrics
	pinger     *pinger
	reach      *redisReach
	comparison latencyComparison
	silent     atomic.Bool // no server answers this node now
	state      reachState
	aliveSince time.Time // since when other nodes are alive
	report     Report    // of this node
	failing    bool      // the report was not published
}

// New returns a monitor. It observes while Run runs.
func New(o Options) (*Monitor, error) {
	switch {
	case o.LockTTL <= 0:
		return nil, errors.New("reachability: LockTTL is not positive")
	case o.Client == nil || o.Latency == nil || o.LastLockAnswer == nil || o.Peers == nil || o.Publish == nil:
		return nil, errors.New("reachability: Client, Latency, LastLockAnswer, Peers and Publish are required")
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.OnWithdraw == nil {
		o.OnWithdraw = func(bool) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Monitor{
		options: o, pinger: newPinger(o.Client), comparison: latencyComparison{ttl: o.LockTTL},
		state: reachState{unreachable: -1}, report: Report{Unreachable: -1},
	}
	return m, m.metrics.registerWith(o.Registerer, o.Latency)
}

// Silent reports whether no Redis primary answers this node now.
func (m *Monitor) Silent() bool { return m.silent.Load() }

// Run observes several times per lock TTL, while other nodes could take over, how this node reaches Redis: which
// primaries answer a ping, and how long its own calls take. It ends with the context.
func (m *Monitor) Run(ctx context.Context) error {
	every := m.options.LockTTL / 12
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	// By two thirds of the lock TTL a refresh has failed, and the others still have time to learn of it before
	// the locks expire.
	timeout := m.options.LockTTL * 2 / 3
	m.reach, m.aliveSince = newRedisReach(timeout, time.Now()), time.Now()
	defer m.pinger.rounds.Wait()
	for tick := 0; ; {
		// Every live node may compare itself with this node. This node compares itself only with those that
		// could take over.
		anyAlive, owners := m.options.Peers()
		if !anyAlive && !m.state.withdrawn {
			// The timeout starts when there are other nodes.
			m.reach, m.aliveSince = newRedisReach(timeout, time.Now()), time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.pinger.answered:
		case <-ticker.C:
			// The timeout of a ping is longer than the interval of pings.
			tick++
			if tick%2 == 0 && (anyAlive || m.state.withdrawn) {
				m.pinger.startRound(ctx, timeout)
			}
		}
		latency := m.assess(ctx, owners)
		if ctx.Err() == nil {
			m.publish(anyAlive, latency)
		}
	}
}

// assess decides whether this node is withdrawn, given the reports of the nodes that could own its shards. It
// returns the latency of this node.
func (m *Monitor) assess(ctx context.Context, owners []Report) (latency time.Duration) {
	now := time.Now()
	m.reach.recordAnswers(m.pinger.answerTimes(), now)
	is, silent := m.reach.assessReach(unreachableCounts(owners), now)
	latency = m.options.Latency.Current(now)
	if m.lockCallsFail(now) {
		latency = max(latency, m.options.Latency.failureLatency())
	}
	is.slow = m.comparison.compareLatencies(latency, owners, now)
	is.withdrawn = is.withdrawn || is.slow
	// Its workers get runs as soon as Redis answers again; only shards require a stable period.
	if m.silent.Swap(silent) != silent {
		m.options.OnChange()
	}
	if is != m.state && ctx.Err() == nil {
		m.logChange(m.state, is, latency)
		m.metrics.setWithdrawn(m.state.withdrawn, is.withdrawn)
		was := m.state.withdrawn
		m.state = is
		if is.withdrawn != was {
			m.options.OnWithdraw(is.withdrawn)
		}
	}
	return latency
}

// lockCallsFail reports whether Redis has answered no call that keeps locks for a third of the lock TTL. Such a node
// can hold no lock, whatever its other calls take: calls on locks have a shorter timeout.
func (m *Monitor) lockCallsFail(now time.Time) bool {
	since := m.options.LastLockAnswer()
	if m.aliveSince.After(since) {
		since = m.aliveSince
	}
	return now.Sub(since) >= max(m.options.LockTTL/3, minLockSilence)
}

// publish publishes the report of this node. It does so whether or not the report has changed, so that the others
// have the current one soon after an update was lost. An unknown latency leaves the last one.
func (m *Monitor) publish(anyAlive bool, latency time.Duration) {
	m.report.Withdrawn, m.report.Unreachable = m.state.withdrawn, m.state.unreachable
	if anyAlive && latency != 0 && hasChangedStep(m.report.Latency, latency) {
		m.report.Latency = max(latency, latencyFloor)
	}
	err := m.options.Publish(m.report)
	switch {
	case err != nil && !m.failing:
		m.options.Logger.Warn("failed to publish reachability of redis", "error", err)
	case err == nil && m.failing:
		m.options.Logger.Info("reachability of redis published again")
	}
	m.failing = err != nil
}

// unreachableCounts are the numbers of primaries that the nodes cannot reach.
func unreachableCounts(reports []Report) (counts []int) {
	for _, r := range reports {
		counts = append(counts, r.Unreachable)
	}
	return counts
}

func (m *Monitor) logChange(was, is reachState, latency time.Duration) {
	log, lost, err := m.options.Logger, m.reach.lostPrimaries(), m.pinger.lastError()
	if is.unreachable > max(was.unreachable, 0) {
		log.Warn("redis does not answer", "primaries", lost, "error", err)
	}
	switch {
	case is.withdrawn && !was.withdrawn && is.slow:
		log.Warn("node withdrawn from shard ownership: redis answers it much later than other nodes", "latency",
			latency, "error", err)
	case is.withdrawn && !was.withdrawn:
		log.Warn("node withdrawn from shard ownership: redis does not answer", "primaries", lost, "error", err)
	case was.withdrawn && !is.withdrawn:
		log.Info("node returned to shard ownership: redis answers", "latency", latency)
	}
}
