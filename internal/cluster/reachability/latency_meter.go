package reachability

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// latencySlices is the number of slices in the window.
	latencySlices = 8
	// latencySteps is the number of latency buckets, four per doubling from 1 ms.
	latencySteps = 64
)

// LatencyMeter measures how long Redis takes to answer this node's own calls: those that obtain and refresh
// locks, write heartbeats, lease, and store results. A failed call counts with its whole timeout. The latency of
// a server is the median over a window, a third of the lock TTL. Each slice of the window has the same weight,
// whatever its number of calls: a busy node and an idle one see the same change of Redis at the same time. The
// result is the median of the servers, because one server that is unavailable to all nodes is no evidence about
// this node.
type LatencyMeter struct {
	sliceLength time.Duration
	maxAge      time.Duration // without success, after which the latency is twice the timeout
	timeout     time.Duration // minimum latency of a failed call

	mu      sync.Mutex
	servers map[string]*serverLatency
}

// serverLatency is the latency of one server.
type serverLatency struct {
	slices    [latencySlices]latencySlice
	succeeded time.Time // last; initially the time of the first call
}

// latencySlice counts the calls that ended in one slice of the window, by step.
type latencySlice struct {
	number int64
	calls  int
	count  [latencySteps]int
}

func NewLatencyMeter(ttl, timeout time.Duration) *LatencyMeter {
	return &LatencyMeter{
		sliceLength: ttl / (3 * latencySlices), maxAge: ttl * 2 / 3, timeout: timeout,
		servers: map[string]*serverLatency{},
	}
}

// failureLatency is the latency of a server that answers no call.
func (l *LatencyMeter) failureLatency() time.Duration { return 2 * l.timeout }

func (l *LatencyMeter) sliceNumber(now time.Time) int64 { return now.UnixNano() / int64(l.sliceLength) }

// observeCall records one call to a server.
func (l *LatencyMeter) observeCall(server string, took time.Duration, failed bool, now time.Time) {
	if failed {
		took = max(took, l.timeout)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.servers[server]
	if x == nil {
		x = &serverLatency{succeeded: now}
		l.servers[server] = x
	}
	if !failed {
		x.succeeded = now
	}
	turn := l.sliceNumber(now)
	s := &x.slices[turn%latencySlices]
	if s.number != turn {
		*s = latencySlice{number: turn}
	}
	s.calls++
	s.count[latencyStep(took)]++
}

// Current is 0 if no call has ended within the window.
func (l *LatencyMeter) Current(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []time.Duration
	for name, x := range l.servers {
		v := x.windowMedian(l.sliceNumber(now))
		if v == 0 {
			delete(l.servers, name)
			continue
		}
		if now.Sub(x.succeeded) >= l.maxAge {
			v = l.failureLatency()
		}
		all = append(all, v)
	}
	return lowerMedian(all)
}

// windowMedian is 0 without calls in the window that ends with the slice turn.
func (x *serverLatency) windowMedian(turn int64) time.Duration {
	var medians []int
	for i := range x.slices {
		if s := &x.slices[i]; s.calls > 0 && s.number <= turn && s.number > turn-latencySlices {
			medians = append(medians, s.medianStep())
		}
	}
	if len(medians) == 0 {
		return 0
	}
	return stepLatency(lowerMedian(medians))
}

// lowerMedian is the lower median; zero for an empty slice.
func lowerMedian[T cmp.Ordered](all []T) (m T) {
	if len(all) > 0 {
		slices.Sort(all)
		m = all[(len(all)-1)/2]
	}
	return m
}

func (s *latencySlice) medianStep() int {
	seen := 0
	for step, n := range s.count {
		seen += n
		if 2*seen >= s.calls {
			return step
		}
	}
	return latencySteps - 1
}

// latencyStep is the step of a latency, stepLatency the lower bound of a step.
func latencyStep(took time.Duration) int {
	ms := float64(took) / float64(time.Millisecond)
	if ms < 1 {
		return 0
	}
	return min(int(4*math.Log2(ms)), latencySteps-1)
}

func stepLatency(step int) time.Duration {
	return time.Duration(math.Exp2(float64(step)/4) * float64(time.Millisecond))
}

// MeasureClient measures the calls of a client; for a Redis Cluster, those to each server.
func (l *LatencyMeter) MeasureClient(client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(c *redis.Client) { c.AddHook(latencyHook{l, c.Options().Addr}) })
		return
	}
	client.AddHook(latencyHook{l, ""})
}

// latencyHook measures calls of a client, including the wait for a connection.
type latencyHook struct {
	l      *LatencyMeter
	server string
}

// DialHook measures nothing: the call that needs the connection is measured.
func (h latencyHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook measures single commands.
func (h latencyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		begun := time.Now()
		err := next(ctx, cmd)
		if !isHandshake(cmd) {
			h.observeCall(begun, err)
		}
		return err
	}
}

// ProcessPipelineHook measures pipelines, each as one call.
func (h latencyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		begun := time.Now()
		err := next(ctx, cmds)
		if !isHandshake(cmds...) {
			h.observeCall(begun, err)
		}
		return err
	}
}

// handshakeCommands are those that the client library sends on a new connection. They measure nothing: package conn
// makes the handshake while it dials, and answers these commands from memory. A node with slow Redis opens a
// connection after each call that timed out, so that they would hide the calls.
var handshakeCommands = []string{"hello", "auth", "select", "client", "readonly"}

// isHandshake reports whether all commands are of the handshake.
func isHandshake(cmds ...redis.Cmder) bool {
	return !slices.ContainsFunc(cmds, func(c redis.Cmder) bool {
		return !slices.Contains(handshakeCommands, c.Name())
	})
}

// observeCall records a call that has ended. A call that the caller cancelled is not evidence about Redis.
func (h latencyHook) observeCall(begun time.Time, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	now := time.Now()
	h.l.observeCall(h.server, now.Sub(begun), err != nil && !isCallError(err), now)
}

// unusablePrefixes are the prefixes of refusals that affect all calls: the server, or this node's user, cannot
// be used.
var unusablePrefixes = []string{
	"NOAUTH", "NOPERM", "WRONGPASS", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "MISCONF",
	"DENIED",
}

// isCallError reports whether a refusal is about this call only.
func isCallError(err error) bool {
	var refusal redis.Error
	if !errors.As(err, &refusal) {
		return false
	}
	word, _, _ := strings.Cut(refusal.Error(), " ")
	return !slices.Contains(unusablePrefixes, word)
}
