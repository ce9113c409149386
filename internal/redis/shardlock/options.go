package shardlock

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Defaults and limits of [Options].
const (
	DefaultTTL           = 10 * time.Second
	DefaultHandoverDelay = 2 * time.Second
	MinTTL               = time.Second

	// defaultPollEvery is the mean pause between two looks at a shard that another process holds.
	defaultPollEvery = time.Second
	// beatEvery is the longest pause between two heartbeats.
	beatEvery = 400 * time.Millisecond
	// shardsPerWorker and maxWorkers bound the calls in flight. A worker that
	// waits for a dead Redis primary is busy for a call timeout, and the
	// refreshes of the living ones must still come through in time.
	shardsPerWorker = 4
	minWorkers      = 4
	maxWorkers      = 64
)

// Options of a [Manager]. Client, Key, HeartbeatKey, Shards, Node and PeerAddr are
// required.
type Options struct {
	// Client talks to the keyspace. It must honour deadlines
	// (ContextTimeoutEnabled), and should be used for locks only, so that they
	// never wait behind batches for a connection. Between 4 and 64 calls are in
	// flight at once: one for four shards.
	Client redis.UniversalClient
	// Functions calls the functions of [Library] in place of sending scripts.
	Functions bool
	// Key names the lock key of a shard. It carries the shard's hash tag.
	Key func(shard int) string
	// HeartbeatKey names the heartbeat key of a process, which is named by 22 random characters.
	HeartbeatKey func(process string) string
	// Shards is the number of shards of the keyspace, 1 or more.
	Shards int
	// Node is this node's unique name, the one that the ring uses. It is not
	// empty and has no '|'.
	Node string
	// PeerAddr is where other nodes reach this one.
	PeerAddr string
	// ClientAddr is where clients reach this node, host:port. Heartbeats carry it unless it is empty.
	ClientAddr string
	// TTL is how long a lock outlives its last refresh; refreshes are made
	// every TTL/3. At least 1 s (MinTTL), whole milliseconds. Default 10 s.
	TTL time.Duration
	// Margin is how long before the expiry of its lock a holder stops by its
	// own clock. More than zero, at most TTL/3. Default TTL/10.
	Margin time.Duration
	// HandoverDelay is how long the view must be unchanged before a held shard is
	// handed to the member that the ring names. Default 2 s.
	HandoverDelay time.Duration

	// OnAcquire and OnLose report changes in what is held. OnRelease reports that the key of a lock that was
	// given up is gone, with the ring's owner of the shard, so that the owner can be notified ("" if there is
	// none). They are called one at a time by the goroutine in Run, outside any lock. They must not block and
	// must not call Release or Drain. Each may be nil.
	OnAcquire func(shard int, value string)
	OnLose    func(shard int, reason string)
	OnRelease func(shard int, owner string)

	// OnAddress is called when [Manager.ClientAddress] has changed for a member. It must not block, and may be
	// nil.
	OnAddress func()

	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	// pollEvery is defaultPollEvery, except in tests of what need not be found by polling.
	pollEvery time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.Margin == 0 {
		o.Margin = o.TTL / 10
	}
	if o.HandoverDelay == 0 {
		o.HandoverDelay = DefaultHandoverDelay
	}
	if o.pollEvery == 0 {
		o.pollEvery = defaultPollEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnAcquire == nil {
		o.OnAcquire = func(int, string) {}
	}
	if o.OnLose == nil {
		o.OnLose = func(int, string) {}
	}
	if o.OnRelease == nil {
		o.OnRelease = func(int, string) {}
	}
	if o.OnAddress == nil {
		o.OnAddress = func() {}
	}
	if err := o.validate(); err != nil {
		return o, fmt.Errorf("shardlock: %w", err)
	}
	return o, nil
}

func (o Options) validate() error {
	switch {
	case o.Client == nil:
		return errors.New("no client")
	case !honoursDeadlines(o.Client):
		return errors.New("the client ignores deadlines: set ContextTimeoutEnabled")
	case o.Key == nil:
		return errors.New("no key function")
	case o.HeartbeatKey == nil:
		return errors.New("no function for heartbeat keys")
	case o.Shards < 1:
		return fmt.Errorf("%d shards", o.Shards)
	case o.Node == "" || strings.Contains(o.Node, Separator):
		return fmt.Errorf("node name %q is empty or has a %q", o.Node, Separator)
	case o.TTL < MinTTL || o.TTL%time.Millisecond != 0:
		return fmt.Errorf("TTL %v is below %v or not in whole milliseconds", o.TTL, MinTTL)
	case o.Margin < 0 || o.Margin > o.TTL/3:
		return fmt.Errorf("margin %v is negative or above a third of the TTL", o.Margin)
	case o.HandoverDelay < 0:
		return fmt.Errorf("settle time %v is negative", o.HandoverDelay)
	}
	return nil
}

// honoursDeadlines is false for a client that would block past the deadline of
// a context: a stalled server would then hold a call for as long as go-redis
// retries, which is longer than a lock lives.
func honoursDeadlines(c redis.UniversalClient) bool {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	default:
		return true
	}
}

func (o Options) refreshEvery() time.Duration { return o.TTL / 3 }

// beatEvery is the pause between two heartbeats of this process.
func (o Options) beatEvery() time.Duration { return min(o.TTL/5, beatEvery) }

// breakBelowPTTL is the PTTL under which two refreshes were missed.
func (o Options) breakBelowPTTL() time.Duration { return o.TTL / 3 }

func (o Options) callTimeout() time.Duration {
	return min(max(o.TTL/10, 100*time.Millisecond), time.Second)
}

// withdrawalDelay is how long the set of withdrawn members must be unchanged before shards move. If no node can
// reach Redis they withdraw one after the other, and no shard should move for that.
func (o Options) withdrawalDelay() time.Duration { return o.TTL / 5 }

// maxWithdrawalDelays is the number of withdrawalDelay after which a change takes effect although others follow it.
const maxWithdrawalDelays = 3

// retryAfter is the pause after a call that ended in an error.
func (o Options) retryAfter() time.Duration {
	return min(max(o.TTL/20, 50*time.Millisecond), 500*time.Millisecond)
}

func (o Options) workerCount() int {
	return min(max(o.Shards/shardsPerWorker, minWorkers), maxWorkers)
}
